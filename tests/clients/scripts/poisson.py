"""DeepXDE's Poisson problem in one dimension: `python poisson.py STEPS FOLDER PASSES`, also under a launcher.

The points are split over the ranks ("strong" scaling); on ranks, PASSES make one update. The values of the
network's variables and the losses end in FOLDER/rank<N>.npz.
"""

import sys

import deepxde as dde
import numpy as np
from deepxde.backend import tf

dde.config.set_random_seed(1234)
dde.config.set_default_float("float64")
dde.config.set_parallel_scaling("strong")
if dde.config.hvd:
    dde.optimizers.config.set_hvd_opt_options(
        backward_passes_per_step=int(sys.argv[3]), average_aggregated_gradients=int(sys.argv[3]) > 1
    )


def pde(x, y):
    return -dde.grad.hessian(y, x) - np.pi**2 * tf.sin(np.pi * x)


geometry = dde.geometry.Interval(-1, 1)
boundary = dde.icbc.DirichletBC(geometry, lambda x: np.sin(np.pi * x), lambda _, on_boundary: on_boundary)
data = dde.data.PDE(geometry, pde, boundary, 16, 2, train_distribution="pseudo", solution=lambda x: np.sin(np.pi * x))
# Rank 0 begins as one process does, the other rank elsewhere: it must get rank 0's values.
first_values = tf.glorot_uniform_initializer(seed=1 + dde.config.rank)
model = dde.Model(data, dde.nn.FNN([1, 20, 20, 1], "tanh", first_values))
model.compile("adam", lr=0.001)
history, _ = model.train(iterations=int(sys.argv[1]), display_every=1)
values = model.sess.run(tf.trainable_variables())
np.savez(
    f"{sys.argv[2]}/rank{dde.config.rank}.npz",
    *values,
    losses=np.array(history.loss_train),
    points=data.train_x,
    ranks=dde.config.world_size,
)
