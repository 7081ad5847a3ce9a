"""SMDDP_VERIFY between processes on two (pretended) nodes: the same error on every rank, and none without cause."""

from __future__ import annotations

from typing import Any

import pytest

from tests.launch.mpirun import SCRIPTS, launch
from tests.launch.scripts.recorder import read_records

RANKS = 3
Records = list[dict[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Records:
    folder = tmp_path_factory.mktemp("verified")
    launch([SCRIPTS / "on_pretended_nodes.py", 2, SCRIPTS / "verified.py", folder], RANKS, timeout=120).check()
    return read_records(folder, RANKS)


@pytest.mark.parametrize("case", ["right", "off"])
def test_what_is_right_passes(records: Records, case: str) -> None:
    assert [record[case]["message"] for record in records] == [""] * RANKS


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("output", "allreduce 'large' gave a wrong result: element 1234 of tensor 0 (float32 [5000])"),
        ("carried", "allreduce 'small' gave a wrong result: element 0 of tensor 0 (float32 [3])"),
        ("input", "allreduce 'large' gave a wrong result: the sum of elements 0 to 4095 of tensor 0"),
        ("set", "in the result of rank 2"),
    ],
)
def test_a_flipped_bit_is_named_on_every_rank(records: Records, case: str, words: str) -> None:
    messages = {record[case]["message"] for record in records}
    assert len(messages) == 1 or case == "set", messages  # the session of all ranks says where it comes from
    for message in messages:
        assert "SMDDP_VERIFY: " in message
        assert words in message


def test_ranks_must_agree_to_verify(records: Records) -> None:
    for record in records:
        assert (
            "SMDDP_VERIFY must be the same on all ranks: rank 0 has 1, rank 1 has 0." in record["mismatch"]["message"]
        )
