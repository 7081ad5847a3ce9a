"""What examples/benchmark.py prints on two ranks of one node."""

from __future__ import annotations

import re

import pytest


def check_rates(output: str, model: str) -> None:
    """The rates are in order, and the efficiency follows from them."""
    found = re.search(rf"{model}, 2 rank\(s\) of \d: (\S+) (samples|images)/s", output)
    spread = re.search(r"10 % below (\S+), 10 % above (\S+) ", output)
    alone = re.search(r"one rank alone: (\S+) \w+/s; efficiency (\S+)%", output)
    assert found, output
    assert spread, output
    assert alone, output
    rate, low, high = float(found[1]), float(spread[1]), float(spread[2])
    assert 0 < low <= rate <= high
    assert float(alone[2]) == pytest.approx(100 * rate / (2 * float(alone[1])), rel=0.01)
    assert "ranks      2 on 1 node(s)" in output
