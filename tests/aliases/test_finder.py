"""Imports of horovod and smdistributed resolve to smddp_tf when that was asked for, and only then. No TensorFlow."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from smddp_tf import aliases
from smddp_tf.aliases import table
from smddp_tf.collectives.reduce_op import Average, Sum
from smddp_tf.compat.horovod import common_util, runner_env
from smddp_tf.lifecycle import rank_variables

ROOT = Path(__file__).resolve().parents[2]

# What every process of a job must find; printed as JSON.
PROBE = """
import importlib.metadata, importlib.util, json, os, sys
import horovod, horovod.tensorflow as hvd
from horovod.common.exceptions import HorovodInternalError
facts = {"version": horovod.__version__, "rank": getattr(hvd.rank, "__module__", ""), "argv": sys.argv[1:]}
facts["metadata"] = importlib.metadata.version("horovod")
facts["spec"] = importlib.util.find_spec("horovod.tensorflow.keras") is not None
facts["elastic"] = hvd.elastic.run.__module__
facts["site"] = os.environ.get("OTHER_SITE")
facts["tensorflow"] = "tensorflow" in sys.modules
print(json.dumps(facts))
"""
VERSIONS = [
    ("2.16.0", "2.16.0", True),
    ("2.21.0", "2.9.0", True),
    ("2.9.1", "2.16.0", False),
    ("3.0.0rc1", "2.99.99", True),
    ("2.16", "2.16.1", False),
]
PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1], 'child'], check=True)"
OURS = {
    "version": table.HOROVOD_VERSION,
    "rank": "smddp_tf.basics",
    "metadata": table.HOROVOD_VERSION,
    "spec": True,
    "elastic": "smddp_tf.elastic.running",
    "tensorflow": False,
}


def python(*arguments: str | Path, path: tuple[Path, ...] = (), **variables: str) -> str:
    env = {name: value for name, value in os.environ.items() if name != "SMDDP_AS"}
    env["PYTHONPATH"] = os.pathsep.join(map(str, [*path, ROOT]))
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(
        command, cwd=ROOT, env=env | variables, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def another_horovod(tmp_path: Path) -> Path:
    (tmp_path / "horovod" / "tensorflow").mkdir(parents=True)
    (tmp_path / "horovod" / "__init__.py").write_text("__version__ = 'the real one'\n")
    (tmp_path / "horovod" / "tensorflow" / "__init__.py").write_text("")
    return tmp_path


def test_a_real_horovod_is_not_shadowed_unless_asked(another_horovod: Path) -> None:
    program = "import smddp_tf, smddp_tf.aliases, horovod; print(horovod.__version__)"
    assert python("-c", program, path=(another_horovod,)).strip() == "the real one"
    script = another_horovod / "script.py"
    script.write_text(f"import smddp_tf.as_horovod\n{PROBE}")
    facts = json.loads(python(script, path=(another_horovod,)))
    assert facts | OURS == facts
    late = "import horovod\ntry:\n    import smddp_tf.as_horovod\nexcept ImportError as error: print(error)"
    assert "horovod is imported already, from" in python("-c", late, path=(another_horovod,))


def test_scripts_and_their_children(tmp_path: Path, another_horovod: Path) -> None:
    """By `python -m smddp_tf.aliases`, and by the environment alone; sitecustomize of others runs too."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import os; os.environ['OTHER_SITE'] = os.environ.get('OTHER_SITE', '') + 'x'"
    )
    script = tmp_path / "script.py"
    script.write_text(f"{PROBE}\nimport mine\n{PARENT}")
    (tmp_path / "mine.py").write_text("")
    path = (site, another_horovod)
    outputs = [python("-m", "smddp_tf.aliases", "horovod", script, PROBE, path=path)]
    base = {"PYTHONPATH": os.pathsep.join(map(str, [*path, ROOT]))}
    outputs.append(python(script, PROBE, **aliases.environment("horovod", base)))
    for output in outputs:
        parent, child = map(json.loads, output.splitlines())
        for facts, argv, times in ((parent, [PROBE], "x"), (child, ["child"], "xx")):
            assert facts | OURS == facts
            assert (facts["argv"], facts["site"]) == (argv, times)
    module = python("-m", "smddp_tf.aliases", "horovod", "-m", "script", PROBE, path=(tmp_path, *path))
    assert len(module.splitlines()) == 2
    launcher = python("-m", "horovod.runner.launch", "--help", **aliases.environment("horovod", base))
    assert "--num-proc" in launcher


def test_environment_adds_up() -> None:
    first = aliases.environment("horovod", {"PYTHONPATH": "/a"})
    folder = first["PYTHONPATH"].split(os.pathsep)[0]
    assert first == {"SMDDP_AS": "horovod", "PYTHONPATH": os.pathsep.join([folder, "/a"])}
    assert (Path(folder) / "sitecustomize.py").exists()
    both = aliases.environment("smdistributed", first)
    assert both == {"SMDDP_AS": "horovod,smdistributed", "PYTHONPATH": first["PYTHONPATH"]}
    assert aliases.environment("horovod", both) == both
    for function in (aliases.environment, aliases.install):
        with pytest.raises(ValueError, match="`family` must be one of 'horovod', 'smdistributed'"):
            function("torch")


def test_both_families_in_a_child() -> None:
    program = (
        "import sys, smddpcommon, herringcommon\n"
        "import smdistributed.dataparallel.tensorflow as sdp, horovod.tensorflow as hvd\n"
        "from smdistributed.dataparallel import exceptions, start_profiler\n"
        "assert sdp.rank is hvd.rank and smddpcommon.setBucketSize is herringcommon.setBucketSize\n"
        "print(exceptions.SMDDPError.__module__, 'tensorflow' in sys.modules)"
    )
    variables = aliases.environment("horovod", aliases.environment("smdistributed", {"PYTHONPATH": str(ROOT)}))
    assert python("-c", program, **variables).strip() == "smddp_tf.sdp.exceptions False"


@pytest.fixture
def installed():
    for family in aliases.FAMILIES:
        aliases.install(family)
        aliases.install(family)  # once is enough
    finders = [finder for finder in sys.meta_path if type(finder).__name__ == "Finder"]
    of_families = [finder for finder in finders if finder.aliased != {"smddp_tf"}]  # that one finds moved modules
    assert len(of_families) == len(aliases.FAMILIES)
    yield
    for family in aliases.FAMILIES:
        aliases.uninstall(family)
    assert "horovod" not in sys.modules


def test_what_is_not_here_says_so(installed) -> None:
    for name, message in (
        ("horovod.torch", "has no horovod.torch: PyTorch trains through torch.distributed"),
        ("horovod.spark.keras", "has no horovod.spark"),
        ("horovod.runner.util.threads", "has no horovod.runner.util: start threads with Python.s threading"),
        ("smdistributed.modelparallel.tensorflow", "has no smdistributed.modelparallel"),
        ("horovod.nothing", "No module named"),
    ):
        with pytest.raises(ModuleNotFoundError, match=message):
            importlib.import_module(name)
    horovod = importlib.import_module("horovod.tensorflow")
    with pytest.raises(
        AttributeError, match=r"'horovod.tensorflow' has no attribute 'nothing' \(it is smddp_tf here\)"
    ):
        horovod.nothing  # noqa: B018
    assert not hasattr(importlib.import_module("horovod"), "torch")


def test_what_a_script_assigns_stays_with_it(installed) -> None:
    import smddp_tf

    horovod = importlib.import_module("horovod.tensorflow")
    assert horovod.init is smddp_tf.init
    assert {"init", "allreduce", "keras"} <= set(dir(horovod))
    horovod.init = None
    assert smddp_tf.init is not None


def test_the_launcher_as_a_module_and_as_a_function() -> None:
    variables = aliases.environment("horovod", {"PYTHONPATH": str(ROOT)})
    call = "from horovod.runner.launch import run_commandline; run_commandline()"
    expected = "0.28.1+smddp\n"
    assert python("-m", "horovod.runner.launch", "--version", **variables) == expected
    assert python("-c", call, "--version", **variables) == expected


def test_without_a_launcher_there_are_no_variables_of_ranks() -> None:
    program = (
        "import smddp_tf.as_horovod, os, horovod.tensorflow as hvd; hvd.init(); "
        "print(hvd.size(), [name for name in os.environ if name.startswith('HOROVOD_')])"
    )
    assert python("-c", program).strip() == "1 []"


def test_only_what_is_missing_of_the_ranks_variables_is_set() -> None:
    """What was set before stays; what this process has set follows its later sessions."""
    names = rank_variables.OF_HOROVOD
    assert names[1:3] == ("HOROVOD_RANK", "HOROVOD_SIZE")
    environment = {"HOROVOD_SIZE": "9"}
    rank_variables.set_those_missing(environment, (1, 4, 0, 2, 1, 2))
    assert [environment[name] for name in names[1:]] == ["1", "9", "0", "2", "1", "2"]
    rank_variables.set_those_missing(environment, (0, 3, 0, 1, 0, 3))
    assert [environment[name] for name in names[1:]] == ["0", "9", "0", "1", "0", "3"]


def test_helpers() -> None:
    assert [n for n in range(9) if common_util.num_rank_is_power_2(n)] == [1, 2, 4, 8]
    assert common_util.extension_available("tensorflow")
    assert not common_util.extension_available("torch")
    assert [common_util.is_iterable(each) for each in ([], "ab", 1, None)] == [True, True, False, False]
    average = common_util.get_average_backwards_compatibility_fun(object())
    assert [average(None, None), average(Sum, None)] == [Average, Sum]
    assert common_util.support_non_legacy_keras_optimizers(object())
    os.environ.pop("SMDDP_TEST_A", None)
    with common_util.env(SMDDP_TEST_A="1", SMDDP_TEST_B=None):
        assert os.environ["SMDDP_TEST_A"] == "1"
    assert "SMDDP_TEST_A" not in os.environ


def test_the_rank_of_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PMIX_RANK", "PMI_RANK", "PMI_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "2")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "5")
    assert runner_env.get_env_rank_and_size() == (2, 5)
    monkeypatch.delenv("OMPI_COMM_WORLD_RANK")
    assert runner_env.get_env_rank_and_size() == (0, 1)


@pytest.mark.parametrize(("version", "target", "expected"), VERSIONS)
def test_versions_are_compared_by_their_numbers(version: str, target: str, expected: bool) -> None:
    assert common_util.is_version_greater_equal_than(version, target) == expected


@pytest.mark.parametrize("pair", [("2.16.0", "2.16"), (2, "2.16.0"), ("2.16.0", None)])
def test_what_is_no_version_is_refused(pair: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="`ver` and `target` must be strings such as 2.16.1. Received: ver="):
        common_util.is_version_greater_equal_than(*pair)
