"""Gives each group of SHARE ranks a host of its own.  python -I -S pretend.py SHARE COMMAND..."""

import os
import sys

share, *command = sys.argv[1:]
rank = int(next(os.environ[name] for name in ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK") if name in os.environ))
os.environ["SMDDP_HOST_ID"] = f"pretended{rank // int(share)}"
os.execvp(command[0], command)
