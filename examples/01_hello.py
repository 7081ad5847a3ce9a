"""Every rank says who it is, and all together compute a mean.

mpirun -np 2 python examples/01_hello.py
python examples/01_hello.py
"""

import tensorflow as tf

import smddp_tf as hvd

hvd.init()

mine = tf.constant([float(hvd.rank()), 10.0 * hvd.rank()])
mean = hvd.allreduce(mine, op=hvd.Average, name="mean")
lines = hvd.allgather_object(
    f"rank {hvd.rank()} of {hvd.size()}: place {hvd.local_rank()} of {hvd.local_size()} on its node, "
    f"brought {mine.numpy().tolist()}, received the mean {mean.numpy().tolist()}"
)

if hvd.rank() == 0:
    print("\n".join(lines))

expected = sum(range(hvd.size())) / hvd.size()
if mean.numpy().tolist() != [expected, 10 * expected]:
    raise SystemExit(f"rank {hvd.rank()}: the mean is wrong, {expected} was expected")
