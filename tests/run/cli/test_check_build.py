"""`smddprun --check-build` and `--version`."""

from __future__ import annotations

import pytest


def test_version_and_build(capsys) -> None:
    from smddp_tf.run import cli

    for flag, words in (("-v", "."), ("--check-build", "Available Tensor Operations:"), ("-cb", "[X] MPI")):
        with pytest.raises(SystemExit) as ended:
            cli.main([flag])
        assert ended.value.code == 0
        assert words in capsys.readouterr().out
