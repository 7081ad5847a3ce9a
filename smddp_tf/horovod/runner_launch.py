"""`horovod.runner.launch`: the command line of `horovodrun` as a function, and with `python -m`."""

from __future__ import annotations

import importlib

__all__ = ["run_commandline"]


def run_commandline() -> None:
    """`horovodrun` with the arguments of this process."""
    importlib.import_module("smddp_tf.run.horovodrun").main()


if __name__ == "__main__":
    run_commandline()
