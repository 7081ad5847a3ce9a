"""What needs TensorFlow names the command that installs it, where there is none."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NEED_TENSORFLOW = (
    "import smddp_tf.keras",
    "import smddp_tf.keras.callbacks",
    "import smddp_tf as hvd; hvd.Compression",
    "import smddp_tf as hvd; hvd.allreduce",
    "import smddp_tf as hvd; hvd.mpi_ops",
    "import smddp_tf.mpi_ops",
    "import smddp_tf.demo",
    "from smddp_tf.compression import Compression",
    "from smddp_tf.elastic import TensorFlowKerasState",
    "import smddp_tf.sdp as sdp; sdp.allreduce",
    "import smddp_tf.sdp as sdp; sdp.keras",
    "import smddp_tf.as_horovod; import horovod.tensorflow.keras",
    "import smddp_tf.as_horovod; import horovod.tensorflow as hvd; hvd.Compression",
)


def test_what_needs_tensorflow_names_the_command_where_there_is_none():
    """In a Python that has nothing but its standard library."""
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "import smddp_tf, smddp_tf.elastic, smddp_tf.sdp\n"  # these do without
        f"for statement in {NEED_TENSORFLOW}:\n"
        "    try: exec(statement)\n"
        "    except ImportError as error: print(type(error).__name__, str(error).replace('\\n', ' '))\n"
        "    else: print('no error')\n"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    wanted = re.compile(r"ImportError TensorFlow is not installed; .* -m pip install 'tensorflow")
    lines = done.stdout.splitlines()
    assert len(lines) == len(NEED_TENSORFLOW)
    assert not [(statement, line) for statement, line in zip(NEED_TENSORFLOW, lines) if not wanted.match(line)]
