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
    family, *command = sys.argv[1:] or [""]
    if family not in aliases.FAMILIES or command in ([], ["-m"]):
        raise SystemExit(_USAGE)
    aliases.install_everywhere(family)
    is_module = command[0] == "-m"
    sys.argv = command[1:] if is_module else command
    sys.path[0] = os.getcwd() if is_module else os.path.dirname(os.path.abspath(command[0]))
    if is_module:
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(command[0], run_name="__main__")


if __name__ == "__main__":
    main()
