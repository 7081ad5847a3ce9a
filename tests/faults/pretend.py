"""Gives each group of SHARE ranks a host of its own; at COORDINATOR, if not "-", they meet over TCP instead of by MPI.

python -I -S pretend.py SHARE COORDINATOR COMMAND...
"""

import os
import sys


def number_of(*names: str) -> int:
    return int(next(os.environ[name] for name in names if name in os.environ))


share, coordinator, *command = sys.argv[1:]
rank = number_of("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
os.environ["SMDDP_HOST_ID"] = f"pretended{rank // int(share)}"
if coordinator != "-":
    size = number_of("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
    own = {"RANK": rank, "SIZE": size, "COORDINATOR": coordinator, "SECRET": "of this job", "MPI": "off"}
    os.environ.update({f"SMDDP_{name}": str(value) for name, value in own.items()})
os.execvp(command[0], command)
