"""What must agree: else `init` is an error on every rank, in the same words, and may be called again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.mpirun import launch
from tests.support.recorder import read_records

pytestmark = pytest.mark.launches

RANKS = 2
Records = list[dict[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Records:
    folder = tmp_path_factory.mktemp("differ")
    launch([Path(__file__).with_name("differ.py"), folder], RANKS, timeout=120).check()
    return read_records(folder, RANKS)


@pytest.mark.parametrize(
    ("case", "what", "odd"),
    [
        ("SMDDP_BUCKET_BYTES", "SMDDP_BUCKET_BYTES (or HOROVOD_FUSION_THRESHOLD)", "1048576"),
        ("SMDDP_CHUNK_BYTES", "SMDDP_CHUNK_BYTES", "8192"),
        ("SMDDP_DYNAMIC_PROCESS_SETS", 'init(process_sets="dynamic") or HOROVOD_DYNAMIC_PROCESS_SETS', "dynamic ones"),
        ("SMDDP_HEARTBEAT_TIMEOUT", "SMDDP_HEARTBEAT_TIMEOUT", "7."),
        ("SMDDP_MONITOR", "The folder to record in (SMDDP_MONITOR)", "/nowhere/else"),
        ("SMDDP_RAIL_ALGORITHM", "SMDDP_RAIL_ALGORITHM", "ring"),
        ("SMDDP_RAIL_BANDWIDTH_MBPS", "SMDDP_RAIL_BANDWIDTH_MBPS", "100."),
        ("SMDDP_RAIL_LATENCY_US", "SMDDP_RAIL_LATENCY_US", "3."),
        ("SMDDP_VERIFY", "SMDDP_VERIFY", "1"),
        ("TF_USE_LEGACY_KERAS", "TF_USE_LEGACY_KERAS", "1"),
        ("tensorflow", "The version of TensorFlow", "1.99.1"),
        ("keras", "The version of Keras", "1.98.1"),
        ("python", "The version of Python", "3.99"),
    ],
)
def test_difference_is_named_on_every_rank(records: Records, case: str, what: str, odd: str) -> None:
    for rank in range(RANKS):
        message = records[rank][case]["message"]
        assert records[rank][case]["error"] == "EngineError", records[rank][case]
        assert message.startswith(f"{what} must be the same on all ranks: rank 0 has "), message
        assert f", rank 1 has {odd}" in message, message
        remedy = "Install the same one for every rank" if "version" in what else "Set the same one for every rank"
        assert f". {remedy}" in message, message


def test_init_works_afterwards(records: Records) -> None:
    assert [records[rank]["the same"]["error"] for rank in range(RANKS)] == [""] * RANKS
