"""tools/structure.py: the way of a gradient through Python, and who assigns to Keras's classes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def of_python() -> ModuleType:
    spec = importlib.util.spec_from_file_location("python_structure", ROOT / "tools" / "python_structure.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_way_of_a_gradient_is_as_listed_and_short(of_python):
    of_python.check_stops()
    assert len(of_python.STOPS) <= 14
    assert len(of_python.files_of_stops()) <= 8
    assert of_python.turns_back() <= 2


def test_the_way_of_a_batch_is_as_listed_and_short(of_python):
    assert len(of_python.STOPS_OF_BATCH) <= 18
    assert len(of_python.files_of_stops(of_python.STOPS_OF_BATCH)) <= 10
    assert of_python.turns_back(of_python.STOPS_OF_BATCH) <= 8


def test_keras_private_state_has_one_writer(of_python):
    """`step_hooks.py` writes the functions of steps by names that it makes."""
    assert of_python.writers_of(["_distributed_dataset"]) == ["smddp_tf/keras/fit/epoch_data.py"]
    assert of_python.writers_of(["train_step", "test_step", "train_function", "test_function"]) == []


def test_what_is_kept_by_thread_is_in_these_files(of_python):
    """A distribution, which Keras keeps so; what runs, for code that Keras calls; an optimizer inside of another."""
    assert of_python.kept_by_thread() == [
        "smddp_tf/keras/optimizer/optimizer_reducer.py",
        "smddp_tf/keras/roles/current_distribution.py",
        "smddp_tf/keras/roles/running.py",
    ]


def test_only_one_file_assigns_to_classes_of_keras(of_python):
    files = {str(path.relative_to(ROOT)): path for path in (ROOT / "smddp_tf").rglob("*.py")}
    found = {name: of_python.assignments_to_keras(path.read_text(encoding="utf-8")) for name, path in files.items()}
    assert [name for name, lines in found.items() if lines] == [of_python.PATCHES]


@pytest.mark.parametrize(
    "source",
    [
        "import keras\nkeras.Model.fit = print",
        "import keras\nkeras.Model.fit.__code__ = print.__code__",
        "import keras\nsetattr(keras.layers.Dense, 'call', print)",
        "from keras.layers import Dense\nDense.call = print",
        "import keras\ndef f():\n    layer = keras.layers.Dense\n    layer.call = print",
        "import keras\ndef f():\n    base = next(b for b in keras.Model.__mro__)\n    base.fit = print",
        "import keras\ndef f():\n    for base in keras.Model.__mro__:\n        del base.fit",
        "def f(optimizer):\n    type(optimizer).apply = print",
        "def f(optimizer_class):\n    optimizer_class.apply, other = print, 1",
    ],
)
def test_assignments_to_classes_of_keras_are_found(of_python, source):
    assert len(of_python.assignments_to_keras(source)) == 1


def test_other_assignments_are_not_taken_for_them(of_python):
    source = (
        "import keras\nclass Mine(keras.Model):\n    def f(self, model):\n        self.x = model.fit = keras.Model\n"
    )
    assert of_python.assignments_to_keras(source) == []


def test_functions_without_annotations_are_found(of_python, tmp_path):
    path = tmp_path / "some.py"
    path.write_text(
        "def a(): ...\ndef b(x) -> None: ...\nclass C:\n    def c(self, x: int) -> int: ...\n    def d(self): ...\n"
    )
    assert of_python.without_annotations(path) == ["a", "b", "d"]
