"""Runs a script with the ranks dealt out to pretended nodes.  python on_pretended_nodes.py NODES SCRIPT ARGUMENTS..."""

import os
import runpy
import sys

nodes, script = int(sys.argv[1]), sys.argv[2]
rank, size = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
os.environ["SMDDP_HOST_ID"] = f"pretended-node-{rank * nodes // size}"
sys.argv = sys.argv[2:]
runpy.run_path(script, run_name="__main__")
