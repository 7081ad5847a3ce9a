"""Programs that replace parts of Horovod's optimizers, tapes and callbacks run under the alias, on two ranks."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tests.support.mpirun import cases_of, launch
from tests.support.recorder import read_records

pytestmark = pytest.mark.launches

HERE = Path(__file__).resolve().parent

RANKS = 2
Records = list[dict[str, dict[str, Any]]]


def records_of(script: str, folder: Path, **variables: str) -> Records:
    arguments = ["-m", "smddp_tf.aliases", "horovod", HERE / script, folder]
    launch(arguments, RANKS, timeout=200, env=variables).check()
    return read_records(folder, RANKS)


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Records:
    return records_of("horovod_clients.py", tmp_path_factory.mktemp("clients"), HOROVOD_CROSS_SIZE="of a launcher")


@pytest.fixture(scope="module")
def legacy_clients(tmp_path_factory: pytest.TempPathFactory) -> Records:
    folder = tmp_path_factory.mktemp("legacy_clients")
    return records_of("horovod_clients_legacy.py", folder, TF_USE_LEGACY_KERAS="1")


@pytest.mark.parametrize("case", [*cases_of(HERE / "horovod_clients.py"), *cases_of(HERE / "horovod_tables.py")])
def test_with_keras_3(clients: Records, case: str) -> None:
    for record in clients:
        assert record[case]["error"] == "", record[case]


@pytest.mark.skipif(
    importlib.util.find_spec("tf_keras") is None, reason="tf_keras is not installed; `make setup` brings it"
)
@pytest.mark.parametrize("case", cases_of(HERE / "horovod_clients_legacy.py"))
def test_with_keras_2(legacy_clients: Records, case: str) -> None:
    for record in legacy_clients:
        assert record[case]["error"] == "", record[case]
