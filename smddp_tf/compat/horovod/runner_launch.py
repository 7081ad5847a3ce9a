"""`horovod.runner.launch`: the command line of `horovodrun` as a function, and with `python -m`."""

from __future__ import annotations

from smddp_tf.run import horovodrun

__all__ = ["run_commandline"]


def run_commandline() -> None:
    """`horovodrun` with the arguments of this process."""
    horovodrun.main()


if __name__ == "__main__":
    run_commandline()
