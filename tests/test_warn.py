"""Warnings show the line of the user's program, however deep in Keras and in us they come up."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from smddp_tf._warn import warn

PACKAGE = Path(__file__).resolve().parents[1] / "smddp_tf"


def called_from(modules: list[str]) -> Callable[[], None]:
    """A function of the last of `modules` that calls one of the module before it, and so on; the first one warns."""
    code = "def call():\n    function('something', RuntimeWarning)\n"
    function: Callable[..., None] = warn
    for module in modules:
        names = {"__name__": module, "function": function}
        exec(compile(code, f"/{module}.py", "exec"), names)
        function, code = names["call"], "def call():\n    function()\n"  # type: ignore[assignment]
    return function


@pytest.mark.parametrize(
    ("modules", "expected"),
    [
        (["smddp_tf.keras.fit.guard", "keras.src.callbacks", "keras.src.trainer", "train"], "/train.py"),
        (
            ["smddp_tf.gradients.tape", "tensorflow.python.eager", "mlflow.keras", "keras.src.trainer"],
            "/mlflow.keras.py",
        ),
        (["smddp_tf.gradients.tape", "contextlib", "functools", "keras_of_mine"], "/keras_of_mine.py"),
        (["smddp_tf", "tf_keras.callbacks"], __file__),
    ],
)
def test_the_line_shown(modules: list[str], expected: str) -> None:
    with pytest.warns(RuntimeWarning, match="something") as caught:
        called_from(modules)()
    assert caught[0].filename == expected


def test_each_line_is_told_once() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for function in (called_from(["smddp_tf", "one"]), called_from(["smddp_tf", "two"])):
            function()
            function()
    assert [warning.filename for warning in caught] == ["/one.py", "/two.py"]


def test_nothing_else_in_the_package_warns() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("warnings.warn", "warnings.warn_explicit")
    ]
    assert [place.split(":")[0] for place in found] == ["_warn.py"], found
