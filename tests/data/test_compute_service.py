"""A tf.data service on the ranks themselves: every process is a worker, in a thread, and a trainer."""

from __future__ import annotations

import dataclasses
import inspect
import json
import socket
import threading
import time
from unittest.mock import Mock

import pytest
import tensorflow as tf

from smddp_tf.data import AsyncDataLoaderMixin, compute_worker, service_registry
from smddp_tf.data.compute_service import TfDataServiceConfig, compute_worker_fn, send_to_data_service, tf_data_service
from smddp_tf.data.service_registry import ComputeClient, ComputeService

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


def test_what_does_not_come_is_an_error(hvd, rank, size):
    if rank > 0:
        return
    service = ComputeService(1, 1)
    config = TfDataServiceConfig(1, 1, "compute", service.address, service.key, timeout=0)
    with pytest.raises(TimeoutError, match="Dispatcher 0 was not started"), tf_data_service(config, 0):
        pass
    config.compute_client().register_dispatcher(0, "localhost:1")
    with pytest.raises(TimeoutError, match="did not get all its workers"), tf_data_service(config, 0):
        pass
    with pytest.raises(ValueError, match="Start each dispatcher once"):
        config.compute_client().register_dispatcher(0, "localhost:2")
    with pytest.raises(TimeoutError, match="Dispatcher 0 did not get all its workers within 0.1 s"):
        config.compute_client(verbose=2).wait_for_dispatcher_worker_registration(0, timeout=0.1)
    with pytest.raises(ValueError, match="has 1 dispatchers, counted from 0. Received: dispatcher 1"):
        config.compute_client().wait_for_dispatcher_registration(1, 60)
    with pytest.raises(ConnectionError, match="No compute service with this key.*Authentication"):
        ComputeClient(service.address, b"another key", 1)
    with pytest.raises(ConnectionError, match="configuration file of an earlier job"):
        dataclasses.replace(config, addresses=("localhost", 1)).compute_client()
    with pytest.raises(ValueError, match="`round_robin` needs"):
        send_to_data_service(tf.data.Dataset.range(2), config, 0, round_robin=True)
    for wrong in ({"dispatcher_side": "both"}, {"dispatchers": 0}, {"workers_per_dispatcher": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            TfDataServiceConfig.from_dict({**config.to_dict(), **wrong})
    service.close()


def test_a_service_that_is_silent_is_an_error(hvd, rank, monkeypatch):
    """It accepts the connection and says nothing more, as a host that has gone."""
    if rank > 0:
        return
    monkeypatch.setattr(service_registry, "_ANSWER_SECONDS", 0.3)
    with socket.create_server(("localhost", 0)) as server:
        config = TfDataServiceConfig(1, 1, "compute", server.getsockname()[:2], b"key")
        with pytest.raises(TimeoutError, match="has not answered for 0 s"):
            config.compute_client()


def test_a_service_that_is_silent_for_a_while_has_not_ended(hvd, rank, monkeypatch):
    if rank > 0:
        return
    service = ComputeService(1, 1)
    client = ComputeClient(service.address, service.key)
    silences = [0.6, 0.6, 0.0]
    monkeypatch.setattr(service_registry, "_ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(service_registry._Registry, "is_over", lambda self: time.sleep(silences.pop(0)) or not silences)
    client.wait_for_shutdown()
    assert not silences
    for gone in (EOFError(), ConnectionResetError()):
        monkeypatch.setattr(client, "_answer", Mock(side_effect=[TimeoutError(), False, gone]))
        client.wait_for_shutdown()
    monkeypatch.setattr(client, "_answer", Mock(side_effect=OSError("no route to host")))
    with pytest.raises(OSError, match="no route"):
        client.wait_for_shutdown()
    service.close()


def test_a_file_that_does_not_come_is_an_error(hvd, tmp_path):
    with pytest.raises(TimeoutError, match="Is the compute job running, does it write its configuration there"):
        TfDataServiceConfig.read(tmp_path / "none", wait_for_file_creation=True, timeout=0.3)


def test_workers_that_cannot_be_shared_out(hvd, size, tmp_path):
    for dispatchers in (0, size + 1):
        with pytest.raises(ValueError, match=f"Received: {size} processes and dispatchers={dispatchers}"):
            compute_worker.main(dispatchers, "compute", tmp_path / "file", timeout=1)
    with pytest.raises(ValueError, match="`dispatcher_side` must be one of"):
        compute_worker.main(1, "nowhere", tmp_path / "file", timeout=1)


# Horovod's, of 0.28.1.
SIGNATURES = {
    compute_worker.main: "dispatchers, dispatcher_side, configfile, timeout",
    compute_worker_fn: "compute_config",
    send_to_data_service: "dataset, compute_config, rank, size, processing_mode, reuse_dataset, round_robin",
    tf_data_service: "compute_config, rank",
    TfDataServiceConfig: "dispatchers, workers_per_dispatcher, dispatcher_side, addresses, key, timeout",
    TfDataServiceConfig.compute_client: "self, verbose",
    TfDataServiceConfig.from_dict: "config",
    TfDataServiceConfig.read: "filename, wait_for_file_creation",
    TfDataServiceConfig.to_dict: "self",
    TfDataServiceConfig.write: "self, filename",
    ComputeClient: "compute_addresses, key, verbose",
    ComputeClient.register_dispatcher: "self, dispatcher_id, dispatcher_address",
    ComputeClient.register_worker_for_dispatcher: "self, dispatcher_id, worker_id",
    ComputeClient.wait_for_dispatcher_registration: "self, dispatcher_id, timeout",
    ComputeClient.wait_for_dispatcher_worker_registration: "self, dispatcher_id, timeout",
    AsyncDataLoaderMixin: "async_loader_queue_size, debug_data_loader, args, kwargs",
}


def test_signatures(hvd):
    for function, expected in SIGNATURES.items():
        parameters = list(inspect.signature(function).parameters.values())
        count = len(expected.split(", "))
        assert ", ".join(parameter.name for parameter in parameters[:count]) == expected
        assert all(parameter.default is not inspect.Parameter.empty for parameter in parameters[count:])


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
