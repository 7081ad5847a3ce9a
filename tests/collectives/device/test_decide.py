"""Which way gradients on GPUs take, decided from what every rank says of its GPU."""

from __future__ import annotations

import contextlib
import random

import pytest

from tests import native_module
from tests.support.layouts import hosts

pytestmark = pytest.mark.native

_core = native_module.core()

NCCL = 22703


def info(uuid: str = "", **fields: object) -> dict:
    """A rank with a GPU that can do everything; without a uuid one that has none."""
    if not uuid:
        return {"wanted": "auto", **fields}
    usual = {"uuid": uuid, "name": "Fake", "bus_id": f"bus of {uuid}", "group_version": NCCL}
    return {**usual, "wanted": "auto", "visible": 1, **fields}


def infos(*uuids: str, **fields: object) -> list[dict]:
    return [info(uuid, **fields) for uuid in uuids]


def stage(layout: list[str], those: list[dict]) -> str:
    return _core.device_decide(layout, those)[0]


@pytest.mark.parametrize(
    ("layout", "those", "expected"),
    [
        (hosts(1), infos("a"), "nccl"),
        (hosts(1), infos("a", group_version=0), "nccl"),  # with nobody to talk to
        (hosts(1), infos(""), "host"),
        (hosts(2), infos("a", "b"), "nccl"),
        (hosts(2, 2), infos("a", "b", "c", "d"), "nccl"),
        (hosts(2, 2), infos("a", "b", "a", "b"), "nccl"),  # a uuid says nothing across nodes
        (hosts(2, 1), infos("a", "b", "c"), "nccl"),
        (hosts(2), infos("a", "a"), "host"),
        (hosts(2), infos("a", "b", group_version=0), "host"),
        (hosts(2, 2), infos("a", "b", "c", "c"), "host"),  # one node could
        (hosts(1, 1), infos("a", "b", group_version=0), "nccl"),  # no node has several ranks
        (hosts(2, 1), [*infos("a", "b"), info("c", group_version=0)], "nccl"),  # the one without needs none
        (hosts(2, 1), infos("a", "a", ""), "host"),
        (hosts(2), [info("a"), info("b", group_version=22802)], "host"),
        (hosts(1, 1), [info("a"), info("b", group_version=22802)], "nccl"),  # they do not meet
    ],
)
def test_auto_takes_the_best_way_that_all_have(layout, those, expected):
    assert stage(layout, those) == expected


@pytest.mark.parametrize("wanted", ["nccl", "host"])
def test_what_is_wanted_is_taken_when_it_can_be(wanted):
    assert stage(hosts(2), infos("a", "b", wanted=wanted)) == wanted


@pytest.mark.parametrize(
    ("layout", "those", "words"),
    [
        (
            hosts(2, 2),
            [*infos("a", "b", "c", wanted="nccl"), info("d", wanted="nccl", group_version=0, why_no_group="no file.")],
            "SMDDP_GPU_STAGE=nccl, but rank 3 cannot use NCCL: no file.",
        ),
        (hosts(2), infos("a", "a", wanted="nccl"), "rank 0 and rank 1 (host h0) use the same GPU, Fake a"),
        (hosts(2), [info("a", wanted="nccl"), info("b", wanted="nccl", group_version=22802)], "rank 1 (the same host"),
        (hosts(2), [info("a", wanted="nccl"), info(wanted="nccl")], "rank 1 (host h0) has no gradients on a GPU"),
        (hosts(2), [info("a", wanted="nccl"), info(wanted="")], "rank 1 (host h0) has no gradients on a GPU"),
        (hosts(2), [info("a", wanted="host"), info("a", wanted="nccl")], "is host on rank 0 and nccl on rank 1"),
        (hosts(1), infos("a", wanted="ipc"), "auto, nccl or host. Received: ipc"),
    ],
)
def test_what_cannot_be_is_refused_with_the_rank_and_the_cause(layout, those, words):
    with pytest.raises((ValueError, _core.EngineError)) as refused:
        stage(layout, those)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("layout", "those", "warned"),
    [
        (hosts(2), infos("a", "a", visible=2), ["Ranks 0 and 1 (host h0)"]),
        (hosts(2), infos("a", "a", visible=1), []),  # there is no other
        (hosts(2), infos("a", "b", visible=2), []),
        (hosts(3), infos("a", "a", "b"), ["Ranks 0 and 1 (host h0)"]),
        (hosts(4), infos("a", "b", "b", "b", visible=1), ["Ranks 1, 2 and 3 (host h0)"]),
        (
            hosts(1, 2, 2),
            infos("a", "b", "b", "c", "c", visible=8),
            ["Ranks 1 and 2 (host h1)", "Ranks 3 and 4 (host h2)"],
        ),
        (hosts(2), [info("a", index=1), info("a")], ["Ranks 0 and 1 (host h0)"]),
    ],
)
def test_ranks_on_one_gpu_of_several_are_warned_of(layout, those, warned):
    warnings = _core.device_decide(layout, those)[1]
    assert len(warnings) == len(warned)
    for warning, beginning in zip(warnings, warned):
        assert warning.startswith(beginning)
        assert "tf.config.set_visible_devices(gpus[hvd.local_rank()]" in warning


@pytest.mark.parametrize("wanted", ["auto", "nccl"])
def test_gradients_on_no_gpu_stay_where_they_are(wanted):
    assert stage(hosts(2), [info(wanted=wanted), info(wanted=wanted)]) == "host"


def test_every_rank_needs_a_card():
    with pytest.raises(_core.EngineError, match="2 ranks"):
        _core.device_decide(hosts(2), infos("a"))


def test_device_infos_travel():
    full = info("GPU-1", index=3, visible=8, wanted="host", group_id="id\0with anything", why_no_group="because")
    assert _core.device_info_decode(_core.device_info_encode(full)) == full
    assert "uuid" not in _core.device_info_decode(_core.device_info_encode(info()))


def test_damaged_device_infos_are_refused():
    text = _core.device_info_encode(info("GPU-1", group_id="x" * 128))
    for length in range(len(text)):
        assert _core.device_info_decode(text[:length]) is None
    assert _core.device_info_decode(text + b"\0") is None
    chance = random.Random(7)
    for _ in range(300):  # none may bring the process down
        damaged = bytearray(text)
        for _ in range(3):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        with contextlib.suppress(UnicodeDecodeError):  # Python's own, of one that could be read
            _core.device_info_decode(bytes(damaged))
