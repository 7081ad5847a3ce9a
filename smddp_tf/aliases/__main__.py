"""Runs one script with the aliases installed, in this process: `python -m smddp_tf.aliases horovod script.py args`.

For use under mpirun or another launcher; `python -m smddp_tf.run --as horovod` starts the processes too.
"""

from __future__ import annotations

import os
import runpy
import sys

from smddp_tf import aliases

_USAGE = f"usage: python -m smddp_tf.aliases {{{','.join(aliases.FAMILIES)}}} (SCRIPT | -m MODULE) [ARGUMENTS...]"


def main() -> None:
    """Does what `python SCRIPT ARGUMENTS...` does."""
    family, *command = [*sys.argv[1:], ""]
    command = command[:-1]
    if family not in aliases.FAMILIES or not command or command == ["-m"]:
        raise SystemExit(_USAGE)
    aliases.install(family)
    os.environ.update(aliases.environment(family))
    if command[0] == "-m":
        sys.argv = command[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = command
        sys.path[0] = os.path.dirname(os.path.abspath(command[0]))
        runpy.run_path(command[0], run_name="__main__")


if __name__ == "__main__":
    main()
