"""SMDDP_VERIFY between processes on two (pretended) nodes: the same error on every rank, and none without cause."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.mpirun import SCRIPTS, launch
from tests.support.recorder import read_records

pytestmark = pytest.mark.launches

RANKS = 3
Records = list[dict[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Records:
    folder = tmp_path_factory.mktemp("verified")
    launch(
        [SCRIPTS / "on_pretended_nodes.py", 2, Path(__file__).with_name("verified.py"), folder], RANKS, timeout=120
    ).check()
    return read_records(folder, RANKS)


@pytest.mark.parametrize("case", ["right", "off"])
def test_what_is_right_passes(records: Records, case: str) -> None:
    assert [(record[case]["error"], record[case]["message"]) for record in records] == [("", "")] * RANKS


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("received", "'sent' .*tensor 0 .* rank 2 .*input of rank 1"),
        ("brought", "block of rank 0 in tensor 0 .* ranks 0, 1, 2 .*input of rank 0"),
        ("shared", "'in shared memory' .*tensor 0 .* on "),
        ("set", "'set' .*tensor 0 .* rank 2 .*input of rank 0"),
    ],
)
def test_damage_is_named_on_every_rank(records: Records, case: str, words: str) -> None:
    of_ranks = [record[case]["message"] for record in records]
    if case == "set":
        assert of_ranks.pop(1) == ""  # is not in it
    assert len(set(of_ranks)) == 1, of_ranks
    assert records[0][case]["reason"] == "data_loss"
    assert re.search(words, of_ranks[0]), of_ranks[0]


def test_ranks_must_agree_to_verify(records: Records) -> None:
    for record in records:
        assert record["mismatch"]["reason"] == "disagreement"
        assert re.search("SMDDP_VERIFY .*rank 0 has 1, rank 1 has 0", record["mismatch"]["message"])
