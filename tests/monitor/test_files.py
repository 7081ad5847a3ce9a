"""The names of the files of a recording."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from smddp_tf.monitor import files


def test_the_names_need_neither_psutil_nor_native_code() -> None:
    code = (
        "import sys, smddp_tf.monitor.files; "
        "sys.exit(any(name in sys.modules for name in ('psutil', 'tensorflow', 'smddp_tf._core')))"
    )
    subprocess.run([sys.executable, "-c", code], timeout=60, check=True)


def test_a_host_name_becomes_a_file_name() -> None:
    assert files.host_file(Path("/r"), "node 1/a_b.example-2") == Path("/r/host-node_1_a_b.example-2.jsonl")
