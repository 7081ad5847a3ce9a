"""A tf.data service on the ranks themselves: every process is a worker, in a thread, and a trainer."""

from __future__ import annotations

import json
import threading

import pytest
import tensorflow as tf

from smddp_tf.data.compute_service import TfDataServiceConfig, compute_worker_fn, send_to_data_service, tf_data_service
from smddp_tf.data.service_registry import ComputeClient, ComputeService

ELEMENTS = 12


@pytest.mark.parametrize("side", ["compute", "training"])
def test_trainers_get_what_workers_prepare(hvd, rank, size, tmp_path, side):
    path = hvd.broadcast_object(tmp_path / "compute.json", 0)
    service = None
    if rank == 0:
        service = ComputeService()
        TfDataServiceConfig(1, size, side, service.address, service.key, timeout=120).write(path)
        assert path.stat().st_mode & 0o077 == 0  # the key is for nobody else
    config = TfDataServiceConfig.read(path, wait_for_file_creation=True)
    assert TfDataServiceConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    worker = threading.Thread(target=compute_worker_fn, args=(config,), daemon=True)
    worker.start()
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
    if service is not None:
        service.close()


def test_what_does_not_come_is_an_error(hvd, rank, size):
    if rank > 0:
        return
    service = ComputeService()
    config = TfDataServiceConfig(1, 1, "compute", service.address, service.key, timeout=0)
    with pytest.raises(TimeoutError, match="Dispatcher 0 was not started"), tf_data_service(config, 0):
        pass
    config.compute_client().register_dispatcher(0, "localhost:1")
    with pytest.raises(TimeoutError, match="did not get its 1 workers"), tf_data_service(config, 0):
        pass
    with pytest.raises(ValueError, match="Start each dispatcher once"):
        config.compute_client().register_dispatcher(0, "localhost:2")
    with pytest.raises(Exception, match="digest|Authentication"):
        ComputeClient(service.address, b"another key", 1)
    with pytest.raises(ValueError, match="`round_robin` needs"):
        send_to_data_service(tf.data.Dataset.range(2), config, 0, round_robin=True)
    for wrong in ({"dispatcher_side": "both"}, {"dispatchers": 0}, {"workers_per_dispatcher": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            TfDataServiceConfig.from_dict({**config.to_dict(), **wrong})
    service.close()


def test_a_configuration_is_written_whole_and_follows_no_link(tmp_path):
    config = TfDataServiceConfig(1, 2, "training", ("localhost", 1), b"key", timeout=1)
    other = tmp_path / "other"
    other.write_text("of somebody else")
    (tmp_path / "config").symlink_to(other)
    config.write(tmp_path / "config")
    assert other.read_text() == "of somebody else"
    assert TfDataServiceConfig.read(tmp_path / "config") == config
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="directory"):
        config.write(tmp_path / "folder")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config", "folder", "other"]
