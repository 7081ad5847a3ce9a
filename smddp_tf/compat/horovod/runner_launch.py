"""`horovod.runner.launch`: the command line of `horovodrun` as a function, and with `python -m`."""

from smddp_tf.run.horovodrun import main as run_commandline

__all__ = ["run_commandline"]

if __name__ == "__main__":
    run_commandline()
