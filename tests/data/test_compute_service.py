"""A tf.data service on the ranks themselves: its configuration, and the signatures."""

from __future__ import annotations

import inspect

import pytest

from smddp_tf.data import AsyncDataLoaderMixin, compute_worker
from smddp_tf.data.compute_service import TfDataServiceConfig, compute_worker_fn, send_to_data_service, tf_data_service
from smddp_tf.data.service_registry import ComputeClient

pytestmark = pytest.mark.ranks("2")


def test_a_file_that_does_not_come_is_an_error(hvd, tmp_path):
    with pytest.raises(TimeoutError, match="Is the compute job running, does it write its configuration there"):
        TfDataServiceConfig.read(tmp_path / "none", wait_for_file_creation=True, timeout=0.3)


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
