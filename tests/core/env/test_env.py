"""The environment variables: which there are, which are misspelt, and which cannot be read."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.native_module import core
from tools import env_docs

ROOT = Path(__file__).resolve().parents[3]
PARTS_OF_NAMES = {"SMDDP_", "SMDDP_RUN_", "SMDDP_IMAGES"}  # the last is a macro of the build
MISSPELT_ON_PURPOSE = ("test_env.py", "test_session_log.py", "test_console_blocks.py")


def names_in_sources() -> set[str]:
    """What stands in quotes, before a `=` or behind a `$` in the files that set or read variables."""
    files = [ROOT / "Makefile", ROOT / "setup.py"]
    for folder in ("smddp_tf", "tests", "tools", "benchmarks", "examples"):
        files += (ROOT / folder).rglob("*.py")
    found: set[str] = set()
    for file in files:
        if file.name not in MISSPELT_ON_PURPOSE:
            text = file.read_text(encoding="utf-8")
            found |= set(re.findall(r"""(?:["'$ ]|\$[({])(SMDDP_[A-Z0-9_]*)(?=["' =:)}])""", text))
    return found


def settings_of_cmake() -> set[str]:
    files = [ROOT / "CMakeLists.txt", *(ROOT / "cmake").glob("*.cmake")]
    return {name for file in files for name in re.findall(r"SMDDP_[A-Z0-9_]+", file.read_text(encoding="utf-8"))}


def test_no_false_alarm() -> None:
    """What this project sets for itself is in the lists of tf_ops/core/env/env.cc."""
    names = names_in_sources()
    assert {"SMDDP_HOST_ID", "SMDDP_RUN_KEY", "SMDDP_MPI_HOME", "SMDDP_TEST_FULL"} <= names
    assert not set(core().unknown_variables(sorted(names - PARTS_OF_NAMES))) - settings_of_cmake()


def test_misspelt() -> None:
    meant = {
        "SMDDP_BUCKETBYTES": "SMDDP_BUCKET_BYTES",
        "SMDDP_TIMLINE": "SMDDP_TIMELINE",
        "SMDDP_STALL_WARNING_SECONDS": "SMDDP_STALL_WARN_SECONDS",
        "SMDDP_LOGLEVEL": "SMDDP_LOG_LEVEL",
        "SMDDP_VERIFI": "SMDDP_VERIFY",
        "SMDDP_FOO": "",
        "SMDDP_TOTALLY_ELSEWHERE": "",
    }
    printed = init_with("SMDDP_VERIFY=1", "SMDDP_TEST_ANYTHING=1", *(f"{name}=1" for name in meant))
    told = re.search(r"Unknown .* have no effect: (.*)\. Are they misspelt\?", printed)
    assert told, printed
    assert sorted(told[1].split(", ")) == sorted(f"{name} ({one}?)" if one else name for name, one in meant.items())


def test_a_healthy_job_is_not_ended_by_default() -> None:
    (row,) = [row for row in core().env_variables() if row["name"] == "SMDDP_STALL_ERROR_SECONDS"]
    assert row["default"] == "0"


def init_with(*variables: str) -> str:
    env = dict(variable.split("=") for variable in variables)
    program = "import smddp_tf as hvd; hvd.init(); hvd.shutdown()"
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), **env},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.stderr


@pytest.mark.parametrize("name", ["SMDDP_LOG_LEVEL", "HOROVOD_LOG_LEVEL", "HOROVOD_LOG_HIDE_TIME", "SMDDP_MPI"])
def test_what_cannot_be_read_is_an_error(name: str) -> None:
    assert re.search(f"ValueError: Environment variable {name} must be .*Received: 'loud'", init_with(f"{name}=loud"))


def test_words_of_horovod() -> None:
    line = "smddp_tf [rank 0] info: smddp_tf"
    assert line in init_with("HOROVOD_LOG_LEVEL=Info")
    assert line in init_with("HOROVOD_LOG_LEVEL=TRACE")
    assert init_with("HOROVOD_LOG_LEVEL=FATAL") == ""


def test_the_page_has_every_variable_once() -> None:
    """What users set and what developers set are apart; `make lint` checks that the page is up to date."""
    rows = core().env_variables()
    text = env_docs.page(rows)
    before, developers = text.split("## For developers")
    for row in rows:
        assert (developers if row["for_developers"] else before).count(f"- **`{row['name']}`**") == 1, row["name"]
        assert text.count(f"- **`{row['name']}`**") == 1
    assert max(map(len, text.splitlines())) <= 120
    assert not re.search(r"^  (\d+\.|[-+*]) ", text, flags=re.MULTILINE), "a line that looks like an item of a list"


@pytest.mark.parametrize(
    ("variables", "needs"),
    [
        ({}, False),
        ({"PMIX_RANK": "0"}, True),
        ({"PMIX_RANK": "0", "OMPI_MCA_ess": "singleton"}, False),  # as mpi4py leaves it, without a launcher
        ({"OMPI_COMM_WORLD_SIZE": "2", "PMIX_RANK": "0", "OMPI_MCA_ess": "singleton"}, True),
    ],
    ids=lambda value: "+".join(value) or "none" if isinstance(value, dict) else str(value),
)
def test_what_mpi_has_started(variables: dict[str, str], needs: bool) -> None:
    code = "from smddp_tf._native import loader; print(loader.core().needs_mpi(False, is_initialized=False))"
    env = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI", "PMI", "SMDDP", "MPI"))}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env | variables, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == f"{needs}\n"
