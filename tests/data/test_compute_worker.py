"""The workers of a tf.data service, on the ranks themselves."""

from __future__ import annotations

import json
import threading

import pytest
import tensorflow as tf

from smddp_tf.data import compute_worker
from smddp_tf.data.compute_service import TfDataServiceConfig, send_to_data_service

pytestmark = pytest.mark.ranks("2")

ELEMENTS = 12


@pytest.mark.parametrize("side", ["compute", "training"])
def test_trainers_get_what_workers_prepare(hvd, rank, size, tmp_path, side):
    path = hvd.broadcast_object(tmp_path / "compute.json", 0)
    worker = threading.Thread(target=compute_worker.main, args=(1, side, path, 120), daemon=True)
    worker.start()
    config = TfDataServiceConfig.read(path, wait_for_file_creation=True, timeout=60)
    assert path.stat().st_mode & 0o077 == 0  # the key is for nobody else
    assert (config.workers_per_dispatcher, config.dispatcher_side, config.timeout) == (size, side, 120)
    assert TfDataServiceConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    dataset = tf.data.Dataset.range(ELEMENTS).map(lambda number: number * 10)
    own = dataset.send_to_data_service(config, rank, size)
    shared = send_to_data_service(dataset, config, rank, reuse_dataset=True) if side == "compute" else None
    assert sorted(own.as_numpy_iterator()) == list(range(0, 10 * ELEMENTS, 10))
    if shared is not None:
        parts = hvd.allgather_object(list(shared.as_numpy_iterator()))
        assert sorted(number for part in parts for number in part) == list(range(0, 10 * ELEMENTS, 10))
    hvd.barrier()
    if rank == 0:
        config.compute_client().shutdown()
    worker.join(60)
    assert not worker.is_alive()
    hvd.barrier()


def test_workers_that_cannot_be_shared_out(hvd, size, tmp_path):
    for dispatchers in (0, size + 1):
        with pytest.raises(ValueError, match=f"Received: {size} processes and dispatchers={dispatchers}"):
            compute_worker.main(dispatchers, "compute", tmp_path / "file", timeout=1)
    with pytest.raises(ValueError, match="`dispatcher_side` must be one of"):
        compute_worker.main(1, "nowhere", tmp_path / "file", timeout=1)
