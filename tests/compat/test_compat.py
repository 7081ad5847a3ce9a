"""When smddp_tf.compat is switched on: in the order in which scripts import things, and SMDDP_KERAS_COMPAT."""

from __future__ import annotations

import json

import pytest

from tests.support.mpirun import launch

pytestmark = [pytest.mark.launches, pytest.mark.one_process]

FORMS = 4
SCRIPT = """
import json
import keras
def works(action):
    try: action()
    except Exception: return False
    return True
print("FOUND" + json.dumps([works(lambda: keras.optimizers.Adam(lr=0.1)), works(lambda: keras.optimizers.SGD(0.1).lr),
    works(lambda: keras.optimizers.SGD(0.1).variables()),
    works(lambda: keras.Sequential([keras.Input((2,))]).compile("sgd", experimental_run_tf_function=False))]))
"""
HVD = "import smddp_tf as hvd"
KERAS = "import smddp_tf.keras as hvd"


@pytest.mark.parametrize(
    ("steps", "env", "on"),
    [
        pytest.param([f"import tensorflow; {HVD}", "hvd.init()"], {}, [False, True], id="init after TensorFlow"),
        pytest.param([f"{HVD}; hvd.init(); hvd.broadcast_variables"], {}, [True], id="first use"),
        pytest.param([KERAS], {}, [True], id="import of smddp_tf.keras"),
        pytest.param([KERAS], {"SMDDP_KERAS_COMPAT": "0"}, [False], id="switched off"),
    ],
)
def test_where_it_is_switched_on(steps: list[str], env: dict[str, str], on: list[bool]) -> None:
    """One program; after each of its steps it tries the old forms."""
    done = launch(["-c", "".join(f"{step}\n{SCRIPT}" for step in steps)], ranks=None, timeout=90, env=env).check()
    found = [json.loads(line.removeprefix("FOUND")) for line in done.output.splitlines() if line.startswith("FOUND")]
    assert found == [[works] * FORMS for works in on]


def test_a_value_that_cannot_be_read() -> None:
    done = launch(["-c", "import smddp_tf.keras"], ranks=None, timeout=90, env={"SMDDP_KERAS_COMPAT": "maybe"})
    assert done.returncode != 0
    assert "SMDDP_KERAS_COMPAT must be 1, true, 0 or false. Received: 'maybe'" in done.output
