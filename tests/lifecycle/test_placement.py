"""A script that is started without mpirun is a job of one rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.mpirun import launch

pytestmark = [pytest.mark.launches, pytest.mark.one_process]


@pytest.mark.parametrize("mpi", ["auto", "off"])
def test_without_a_launcher(mpi: str) -> None:
    finished = launch(
        [Path(__file__).with_name("standalone.py")], ranks=None, timeout=90, env={"SMDDP_MPI": mpi}
    ).check()
    assert "standalone works" in finished.output


def test_import_does_not_load_tensorflow() -> None:
    code = "import sys, smddp_tf; sys.exit('tensorflow' in sys.modules)"
    launch(["-c", code], ranks=None, timeout=60).check()


def test_devices_can_be_configured_after_init() -> None:
    code = (
        "import smddp_tf as hvd, tensorflow as tf; hvd.init(); "
        "tf.config.threading.set_intra_op_parallelism_threads(1); "
        "tf.config.set_logical_device_configuration(tf.config.list_physical_devices('CPU')[0], "
        "[tf.config.LogicalDeviceConfiguration()] * 2); "
        "assert len(tf.config.list_logical_devices('CPU')) == 2"
    )
    launch(["-c", code], ranks=None, timeout=60).check()


@pytest.mark.parametrize(
    ("env", "error"),
    [
        ({"RANK": "1", "WORLD_SIZE": "2"}, "MASTER_ADDR is not"),
        ({"HOROVOD_SIZE": "2"}, "2 processes train together, but this job has 1"),
        (
            {
                "RANK": "1",
                "WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": "9",
                "SMDDP_START_TIMEOUT": "1",
            },
            "did not meet rank 0 at 127.0.0.1:10 within 1 s",
        ),
    ],
)
def test_processes_that_belong_together_do_not_train_apart(env: dict[str, str], error: str) -> None:
    code = "import smddp_tf as hvd\nfor _ in range(2):\n try: hvd.init()\n except RuntimeError as error: print(error)\n"
    output = launch(["-c", code], ranks=None, timeout=60, env=env).check().output
    assert output.count(error) == 2, output
