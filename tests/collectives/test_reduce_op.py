"""The reductions: Horovod's numbers, and what the argument `op` may be."""

from __future__ import annotations

import pytest

from smddp_tf.collectives.reduce_op import Average, Max, Min, Sum, as_reduce_op, resolve_average


@pytest.mark.parametrize("number", range(6))
def test_numbers_are_horovods(number: int) -> None:
    names = ("Average", "Sum", "Adasum", "Min", "Max", "Product")
    assert as_reduce_op(number).name == names[number]


@pytest.mark.parametrize("wrong", [True, False, 6, -1, "Sum", None])
def test_what_is_no_reduction_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="`op` must be one of hvd.Average, hvd.Sum, .*Received: op=") as raised:
        as_reduce_op(wrong)  # type: ignore[arg-type]
    assert "hvd.allreduce` takes" not in str(raised.value)


def test_one_that_this_function_does_not_take_is_told_where_it_may_be_given() -> None:
    assert as_reduce_op(Sum, (Average, Sum)) is Sum
    with pytest.raises(ValueError, match=r"one of hvd\.Average, hvd\.Min\. .* `hvd.allreduce` takes hvd\.Max\."):
        as_reduce_op(Max, (Average, Min))


def test_the_older_argument_average() -> None:
    assert resolve_average(None, None) is Average
    assert resolve_average(4, None) is Max
    for average, op in ((True, Average), (False, Sum)):
        with pytest.warns(DeprecationWarning, match=f"write `op=hvd.{op.name}`"):
            assert resolve_average(None, average) is op
    with pytest.raises(ValueError, match=r"Received: op=1, average=False"):
        resolve_average(1, False)
