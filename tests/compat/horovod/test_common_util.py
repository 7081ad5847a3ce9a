"""`horovod.common.util`: the helpers that scripts use."""

from __future__ import annotations

import contextlib
import os

import pytest

from smddp_tf.collectives.reduce_op import Average, Sum
from smddp_tf.compat.horovod import common_util


@pytest.mark.parametrize("length", range(8))
@pytest.mark.parametrize("parts", [1, 3, 5])
def test_parts_of_a_list(length: int, parts: int) -> None:
    whole = list(range(length))
    found = common_util.split_list(whole, parts)
    assert [item for part in found for item in part] == whole
    assert len(found) == parts
    lengths = [len(part) for part in found]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] - lengths[-1] <= 1


def test_versions() -> None:
    newer = common_util.is_version_greater_equal_than
    assert newer("2.16.1", "2.16.1")
    assert newer("2.16.10", "2.16.9")  # by number
    assert not newer("2.9.3", "2.16.0")
    assert newer("2.21.0rc1", "2.21.0")
    for ver, target in ((2.16, "2.16.1"), ("2.16.1", "2.16")):
        with pytest.raises(ValueError, match=r"strings such as 2\.16\.1"):
            newer(ver, target)  # type: ignore[arg-type]


def test_variables_are_set_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMDDP_TEST_THERE", "before")
    monkeypatch.delenv("SMDDP_TEST_NOT_THERE", raising=False)
    inside = common_util.env(SMDDP_TEST_THERE="inside", SMDDP_TEST_NOT_THERE="too", HOME=None)
    with contextlib.suppress(KeyError), inside:
        assert (os.environ["SMDDP_TEST_THERE"], os.environ["SMDDP_TEST_NOT_THERE"]) == ("inside", "too")
        assert "HOME" in os.environ
        raise KeyError  # they are restored all the same
    assert os.environ["SMDDP_TEST_THERE"] == "before"
    assert "SMDDP_TEST_NOT_THERE" not in os.environ


def test_powers_of_two_and_what_can_be_iterated() -> None:
    assert [number for number in range(-1, 20) if common_util.num_rank_is_power_2(number)] == [1, 2, 4, 8, 16]
    assert [common_util.is_iterable(x) for x in ("", {}, iter(()), 3, None)] == [True, True, True, False, False]
    assert [common_util.extension_available(x) for x in ("tensorflow", "keras", "torch")] == [True, True, False]


def test_op_and_the_older_argument() -> None:
    merged = common_util.get_average_backwards_compatibility_fun(None)
    assert merged(None, None) is Average
    with pytest.warns(DeprecationWarning):
        assert merged(None, False) is Sum
