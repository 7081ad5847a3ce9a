"""The numbers of requests are the engine's."""

from __future__ import annotations

import re
from pathlib import Path

from smddp_tf._native.requests import Kind

HEADER = Path(__file__).resolve().parents[2] / "tf_ops" / "runtime" / "api" / "session.h"


def test_kinds_have_the_numbers_of_the_header() -> None:
    listed = re.search(r"enum class RequestKind : uint8_t \{(.*?)\};", HEADER.read_text(encoding="utf-8"), re.DOTALL)
    assert listed
    numbers = {name.upper(): int(number) for name, number in re.findall(r"k(\w+) = (\d+)", listed[1])}
    assert {kind.name: kind.value for kind in Kind} == {name: numbers[name] for name in Kind.__members__}
