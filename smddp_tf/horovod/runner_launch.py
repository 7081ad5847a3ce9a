"""`horovod.runner.launch`: the command line of `horovodrun` as a function, and with `python -m`."""

from __future__ import annotations

import importlib

__all__ = ["run_commandline"]


def run_commandline() -> None:
    """`smddprun` with the arguments of this process."""
    importlib.import_module("smddp_tf.run.cli").main()


if __name__ == "__main__":
    run_commandline()
