"""When smddp_tf.compat is switched on: in the order in which scripts import things, and SMDDP_KERAS_COMPAT."""

from __future__ import annotations

import json

import pytest

from tests.launch.mpirun import launch

FORMS = 4
SCRIPT = """
import json, sys
{begin}
import keras
def works(action):
    try: action()
    except Exception: return False
    return True
print("FOUND" + json.dumps([works(lambda: keras.optimizers.Adam(lr=0.1)), works(lambda: keras.optimizers.SGD(0.1).lr),
    works(lambda: keras.optimizers.SGD(0.1).variables()),
    works(lambda: keras.Sequential([keras.Input((2,))]).compile("sgd", experimental_run_tf_function=False))]))
"""


@pytest.mark.parametrize(
    ("begin", "env", "on"),
    [
        pytest.param("import tensorflow, smddp_tf as hvd; hvd.init()", {}, True, id="init after TensorFlow"),
        pytest.param("import smddp_tf as hvd; hvd.init(); hvd.broadcast_variables", {}, True, id="first use"),
        pytest.param("import smddp_tf.keras as hvd", {}, True, id="import of smddp_tf.keras"),
        pytest.param("import smddp_tf.keras as hvd", {"SMDDP_KERAS_COMPAT": "0"}, False, id="switched off"),
        pytest.param("import tensorflow, smddp_tf", {}, False, id="not used yet"),
    ],
)
def test_where_it_is_switched_on(begin: str, env: dict[str, str], on: bool) -> None:
    done = launch(["-c", SCRIPT.format(begin=begin)], ranks=None, timeout=90, env=env).check()
    assert json.loads(done.output.split("FOUND")[1].splitlines()[0]) == [on] * FORMS


def test_a_value_that_cannot_be_read() -> None:
    done = launch(["-c", "import smddp_tf.keras"], ranks=None, timeout=90, env={"SMDDP_KERAS_COMPAT": "maybe"})
    assert done.returncode != 0
    assert "SMDDP_KERAS_COMPAT must be 1, true, 0 or false. Received: 'maybe'" in done.output
