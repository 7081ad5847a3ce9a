"""tools/structure.py: the limits, the way of a gradient through Python, and who assigns to Keras's classes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def of_python() -> ModuleType:
    return loaded("python_structure")


@pytest.fixture(scope="module")
def structure() -> ModuleType:
    return loaded("structure")


def test_nothing_is_over_the_limits(structure):
    """What is over a limit of tools/structure.py has a concern that belongs to another class, function or folder."""
    over = structure.excess(structure.parts())
    assert {found: text for found, text in over.items() if found not in structure.EXCEPTIONS} == {}
    assert [exception for exception in structure.EXCEPTIONS if exception not in over] == []


def of_python_source(structure, of_python, source: str) -> dict[tuple[str, str], str]:
    return structure.excess(structure.Part(*part) for part in of_python.parts_of(source))


def of_native_source(structure, source: str) -> dict[tuple[str, str], str]:
    code = structure.code_of(source)
    return structure.excess(structure.functions(code, 0, len(code)))


@pytest.mark.parametrize(
    ("line", "most", "measure"),
    [("    x = {}", 250, "lines"), ("    def f{}(self): ...", 25, "methods"), ("    f{}: int", 15, "fields")],
)
def test_python_classes_over_a_limit_are_found(structure, of_python, line, most, measure):
    def over(count: int) -> dict[tuple[str, str], str]:
        others = count - (measure == "lines")  # the line with the class's name
        return of_python_source(structure, of_python, "\n".join(["class C:", *map(line.format, range(others))]))

    assert over(most) == {}
    assert over(most + 1) == {("C", measure): f"{most + 1} {measure} (at most {most})"}


def test_fields_that_methods_assign_are_counted_once(structure, of_python):
    source = "class C:\n    a: int = 0\n    def f(self):\n        self.a = self.b = 1\n        self.b += self.c\n"
    ((_, _, sizes), _) = of_python.parts_of(source)
    assert sizes == {"lines": 5, "methods": 1, "fields": 2}


@pytest.mark.parametrize("prefix", ["def f():\n", 'def f():\n    """Does.\n\n    More.\n    """\n'])
def test_long_python_functions_are_found(structure, of_python, prefix):
    """Docstrings are not counted; functions inside of others and methods are looked at too."""
    assert of_python_source(structure, of_python, prefix + "    x = 1\n" * 59) == {}
    assert of_python_source(structure, of_python, prefix + "    x = 1\n" * 60) == {
        ("f", "lines"): "61 lines (at most 60)"
    }
    inside = "class C:\n    def f(self):\n        def g():\n" + "            x = 1\n" * 60
    assert set(of_python_source(structure, of_python, inside)) == {("C.f", "lines"), ("C.f.g", "lines")}


@pytest.mark.parametrize(
    ("arguments", "count"), [("a, b, c, d, e, f, g, h", 8), ("self, a, b, c, d, e, f, g, /, h=1", 8)]
)
def test_python_functions_with_many_arguments_are_found(structure, of_python, arguments, count):
    assert of_python_source(structure, of_python, f"def f({arguments}): ...") == {}
    for more in ("*i", "*, i", "**i"):
        over = of_python_source(structure, of_python, f"def f({arguments}, {more}): ...")
        assert over == {("f", "arguments"): f"{count + 1} arguments (at most 8)"}


NATIVE = """
namespace a {
template <class T, class U>
class C {
 public:
  C(int a, std::map<int, std::function<void(int, int)>> b, int c, int d, int e, int f, int g, int h) : a_{a}, b_(b) {}
  void Declared(int a, int b, int c, int d, int e, int f, int g, int h, int i);
  int f_ = Call(1, 2, 3, 4, 5, 6, 7, 8, 9);
};
int None(void) { return 0; }
%s
}  // namespace a
"""


def test_functions_of_cpp_over_a_limit_are_found(structure):
    assert of_native_source(structure, NATIVE % "") == {}
    lines = "  x = 1;\n"
    assert of_native_source(structure, NATIVE % ("Status C::F() {\n" + lines * 58 + "}")) == {}
    over = of_native_source(structure, NATIVE % ("Status C::F() {\n" + lines * 59 + "}"))
    assert over == {("C::F", "lines"): "61 lines (at most 60)"}
    nine = "int a, int b, int c, int d, int e, std::map<int, int> f, void (*g)(int, int), int h, int i"
    over = of_native_source(structure, NATIVE % f"class D {{ void F({nine}) const {{ return; }} }};")
    assert over == {("D::F", "arguments"): "9 arguments (at most 8)"}


def test_cpp_classes_and_folders_over_a_limit_are_found(structure):
    sizes = {"lines": 321, "methods": 26, "fields": 16}
    assert len(structure.excess([structure.Part("C++ class", "C", sizes)])) == 3
    assert structure.excess([structure.Part("C++ class", "C", {name: size - 1 for name, size in sizes.items()})]) == {}
    files = [ROOT / "smddp_tf" / "a" / f"{number}.py" for number in range(21)]
    assert structure.excess(structure.folders(files[1:])) == {}
    over = structure.excess(structure.folders([*files, ROOT / "smddp_tf" / "b.py"]))
    assert over == {("smddp_tf/a", "files"): "21 files (at most 20)"}


CLASS = """
namespace a {
namespace {
struct Plain { int x = 0, y = f(1, 2); };
}  // namespace
template <class T>
class One final : public Base<T, int> {
 public:
  using Callback = std::function<void(int)>;
  enum class Kind { kA, kB };
  struct Inner {
    int z = 0;
    bool IsWellFormed() const { return z > 0; }
  };
  static constexpr int kSize = 3;
  static_assert(kSize > 2);
  explicit One(int x) : x_{x}, call_([] { return "};"; }) {}  // not: int comment;
  One(const One&) = delete;
  ~One();
  template <class Visit>
  void Each(Visit visit) const { for (int i = 0; i < 3; ++i) { visit(i); } }
  virtual Status End(const Status& why, bool tell = true) = 0;
  bool operator<(const One& other) const { return x_ < other.x_; }
  SMDDP_FIELDS(a, b);

 private:
  friend class Two;
  std::map<std::string, std::function<void(int)>> by_name_;
  std::atomic<int64_t> sent_{0}, bytes_{0};
  int x_, slots_[4] = {};
  Callback call_ = nullptr;
  struct Asked {
    int number = -1;
  } asked_;
  alignas(64) std::atomic<uint32_t> written_{0};
};
One::~One() {
  if (x_) {
    x_ = 0;
  }
}
void One::Inner::Print() {}
}  // namespace a
"""


def test_members_of_classes_are_counted(structure):
    found: dict[str, Any] = {}
    code = structure.code_of(CLASS)
    structure.read_classes(code, 0, len(code), "", found)
    assert sorted(found) == ["One", "One::Asked", "One::Inner", "Plain"]
    assert (found["One"].methods, found["One"].fields) == (5, 8)
    assert (found["One::Inner"].methods, found["One::Inner"].fields) == (1, 1)
    assert (found["Plain"].methods, found["Plain"].fields, found["Plain"].lines) == (0, 2, 1)
    assert found["One"].lines == 31 + 5  # the declaration, and the method outside of it
    assert found["One::Inner"].lines == 4 + 1


def test_the_way_of_a_gradient_is_as_listed_and_short(of_python):
    of_python.check_stops()
    assert len(of_python.STOPS) <= 17
    assert len(set(of_python.files_of(of_python.STOPS))) <= 12
    assert of_python.turns_back(of_python.STOPS) <= 5


def test_the_way_of_a_batch_is_as_listed_and_short(of_python):
    assert len(of_python.STOPS_OF_BATCH) <= 11
    assert len(set(of_python.files_of(of_python.STOPS_OF_BATCH))) <= 9
    assert of_python.turns_back(of_python.STOPS_OF_BATCH) <= 2


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


def test_what_ships_does_not_grow(structure):
    assert structure.source_lines() <= structure.MOST_SOURCE_LINES


def test_the_test_of_a_module_is_found_by_its_name(structure):
    """A reader who changes a module finds the tests that would fail."""
    modules = structure.modules_to_test()
    missing = structure.without_test_by_name(modules)
    assert len(missing) <= 10, [str(path.relative_to(ROOT)) for path in missing]
    assert ROOT / "smddp_tf/keras/_backend.py" not in missing  # tests/keras/test_backend.py
    assert ROOT / "smddp_tf/as_horovod.py" in missing
    assert structure.share_found_by_name(missing) == f"0 % (0 of {len(missing)})"


def test_the_test_of_a_cpp_unit_is_found_by_its_name(structure):
    """Without one: what only tests/gpu and tests/gpu_ops can run, and parts that are tested through others."""
    missing = structure.without_test_by_name([path for path in structure.native("tf_ops") if path.suffix == ".cc"])
    assert len(missing) <= 17, [str(path.relative_to(ROOT)) for path in missing]
    assert ROOT / "tf_ops/runtime/engine/engine.cc" not in missing  # test_engine.cc, of its own
    assert ROOT / "tf_ops/cuda/cuda_device.cc" in missing


@pytest.mark.parametrize(
    ("source", "does"),
    [
        ('"""Doc."""\nfrom a import b\n__all__ = ["b"]\nC = Union[b, int]\n', False),
        ('class E(ValueError):\n    """Of a kind."""\n', False),
        ("class E(ValueError):\n    x = 1\n", True),
        ("def f(): ...\n", True),
        ("import a\na.install()\n", True),
    ],
)
def test_modules_that_only_name_what_others_have(of_python, source, does):
    assert of_python.does_something(source) is does


def test_comments_and_docstrings_are_no_source_lines(structure, of_python):
    text = '"""A module.\n\nIts contract.\n"""\n\nimport os  # why\n\n\ndef f():\n    """Does."""\n'
    text += "    # how\n    return (\n        1\n    )\n"
    assert of_python.source_lines(text) == 5  # import, def, and three of return
    assert structure.source_lines_of("// a\n\nint f() {  // b\n/* c\n   d */\n  return 1;\n}\n") == 3
