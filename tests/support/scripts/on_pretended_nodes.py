"""Runs a script with the ranks dealt out to pretended nodes.  python on_pretended_nodes.py NODES SCRIPT ARGUMENTS..."""

import os
import runpy
import sys

from smddp_tf.lifecycle.placement import find_placement

nodes, script = int(sys.argv[1]), sys.argv[2]
place = find_placement(os.environ)
assert place is not None, "This script runs under mpirun."
assert place.size is not None, "This launcher says no number of ranks."
os.environ["SMDDP_HOST_ID"] = f"pretended-node-{place.rank * nodes // place.size}"
sys.argv = sys.argv[2:]
runpy.run_path(script, run_name="__main__")
