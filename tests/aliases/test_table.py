"""Modules of this package that lie in folders now are still found by their names of before."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from smddp_tf.aliases import table


@pytest.mark.parametrize("name", [name for name, targets in table.MOVED.items() if targets])
def test_a_moved_module_has_the_names_of_the_new_one(name: str) -> None:
    (target,) = table.MOVED[name]
    moved, module = importlib.import_module(name), importlib.import_module(target)
    public = [each for each in vars(module) if not each.startswith("__")]
    assert public
    assert all(getattr(moved, each) is getattr(module, each) for each in public)


def test_programs_import_from_them() -> None:
    program = "from smddp_tf.objects import broadcast_object; from smddp_tf.tf1.optimizer import DistributedOptimizer"
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=120)


def test_a_name_that_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"smddp_tf\.nothing"):
        importlib.import_module("smddp_tf.nothing")
