"""`import smddp_tf.torch` without PyTorch. What it does with it: tests/torch_backend (`make test-torch`)."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
sys.modules["torch"] = None  # as where it is not installed
try:
    import smddp_tf.torch
except ImportError as error:
    print(error)
print("tensorflow" in sys.modules)
"""


def test_an_error_says_what_is_missing() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == [
        "smddp_tf.torch needs PyTorch, which is not installed: pip install torch.",
        "False",
    ]
