"""mpi4py in a process of ours, which imports it before or after `hvd.init()`: `mpi4py_beside.py before|after|late`.

late: as before, and rank 1 comes to `hvd.init()` when more than half of the start timeout (10 s) has passed.
"""

import sys
import time

if sys.argv[1] != "after":
    from mpi4py import MPI

import smddp_tf as hvd

if sys.argv[1] == "late":
    MPI.COMM_WORLD.barrier()
    time.sleep(6 * MPI.COMM_WORLD.rank)
hvd.init()
if sys.argv[1] == "after":
    from mpi4py import MPI

world = MPI.COMM_WORLD
assert (world.rank, world.size) == (hvd.rank(), hvd.size())
assert MPI.Query_thread() == MPI.THREAD_MULTIPLE
world.barrier()
assert not world.iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG), "a message of hvd.init() is left for the user's receives"
for turn in range(20):
    ours = hvd.allgather_object((turn, hvd.rank()))
    theirs = world.allgather((turn, world.rank))
    assert ours == theirs == [(turn, rank) for rank in range(hvd.size())], (ours, theirs)
hvd.shutdown()
assert world.allreduce(world.rank + 1) == world.size * (world.size + 1) // 2  # MPI is still there
print("rank", world.rank, "done")
