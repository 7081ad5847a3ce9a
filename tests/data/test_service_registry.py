"""Where trainers and workers of a tf.data service meet: what does not come, and who is silent."""

from __future__ import annotations

import dataclasses
import socket
import time
from unittest.mock import Mock

import pytest
import tensorflow as tf

from smddp_tf.data import service_registry
from smddp_tf.data.compute_service import TfDataServiceConfig, send_to_data_service, tf_data_service
from smddp_tf.data.service_registry import ComputeClient, ComputeService

pytestmark = pytest.mark.ranks("2")


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
    monkeypatch.setattr(service_registry, "_LONG_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(client, "_registry", Mock(get=lambda *_: time.sleep(silences.pop(0)) or not silences))
    client.wait_for_shutdown()
    assert not silences
    for gone in (EOFError(), ConnectionResetError()):
        monkeypatch.setattr(client, "_answer", Mock(side_effect=[TimeoutError(), False, gone]))
        client.wait_for_shutdown()
    monkeypatch.setattr(client, "_answer", Mock(side_effect=OSError("no route to host")))
    with pytest.raises(OSError, match="no route"):
        client.wait_for_shutdown()
    service.close()
