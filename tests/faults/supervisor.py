"""Runs one rank's command and notes its process and its end.  python -I -S supervisor.py FOLDER COMMAND...

It ends as the command did, by the same signal or with the same code, so that the launcher sees no difference.
"""

import json
import os
import signal
import sys
import time


def note(path, value):
    with open(f"{path}.part", "w") as file:
        json.dump(value, file)
    os.rename(f"{path}.part", path)


folder, *command = sys.argv[1:]
names = ("SMDDP_RUN_NUMBER", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
rank = next(os.environ[name] for name in names if name in os.environ)
for sign in (signal.SIGTERM, signal.SIGINT):  # the launcher sends them to the whole group; the rank decides
    signal.signal(sign, lambda number, frame: None)
child = os.fork()
if child == 0:
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, signal.SIG_DFL)
    os.execvp(command[0], command)
note(f"{folder}/{rank}.process", child)
status = os.waitpid(child, 0)[1]
code = (
    os.waitstatus_to_exitcode(status)
    if hasattr(os, "waitstatus_to_exitcode")
    else (-os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))
)
note(f"{folder}/{rank}.end", {"code": code, "at": time.time()})
if code < 0:
    signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
    os.kill(os.getpid(), -code)
os._exit(code)
