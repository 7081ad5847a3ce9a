"""DistributedEmbedding: ways to save that cannot work are errors; none of them hangs."""

from __future__ import annotations

import contextlib

import keras
import numpy as np
import pytest

import smddp_tf.keras as hvk
import smddp_tf.keras.distribution
from smddp_tf.keras.elastic.states import TensorFlowKerasState
from smddp_tf.keras.saving import sharded_variables
from tests.support.embedding_models import CUSTOM_OBJECTS, cut_model, data_of, give_first_tables, part
from tests.variants import in_full

pytestmark = pytest.mark.ranks("2")

# A rank without rows of a table has a row of zeros, and the same slots after a file was loaded.
OPTIMIZERS = {"adam": keras.optimizers.Adam, "adagrad": lambda: keras.optimizers.Adagrad(initial_accumulator_value=0.0)}


@pytest.fixture(params=["adam", *in_full("adagrad")])  # which slots there are counts in commits alone: see there
def model(request, hvd, size):
    if size == 1:
        pytest.skip("one rank has whole tables")
    model = give_first_tables(cut_model(("row_wise", "column_wise", "table_wise")))
    model.compile(hvk.DistributedOptimizer(OPTIMIZERS[request.param]()), "mse")
    return model


def test_one_rank_that_saves_alone(hvd, rank, model, tmp_path, monkeypatch):
    monkeypatch.setattr(sharded_variables, "WAIT_SECONDS", 2.0)
    if rank != 0:
        hvd.barrier()
    with pytest.raises(RuntimeError, match=f"Rank {rank} saves a model .* not all others .* within 2 s"):
        model.save(tmp_path / "alone.keras")  # on the others this is what rank 0 has waited for: too late
    assert not (tmp_path / "alone.keras").exists()
    monkeypatch.undo()
    if rank == 0:
        hvd.barrier()
    model.save_weights(tmp_path / "together.weights.h5")
    assert (tmp_path / "together.weights.h5").exists() == (rank == 0)


def test_what_rank_0_cannot_write_is_an_error_everywhere(rank, model, tmp_path):
    expected = OSError if rank == 0 else RuntimeError
    with pytest.raises(expected, match="o such file or directory|Rank 0 could not save the model: .*rror"):
        model.save_weights("/proc/absent/below.weights.h5")


def test_other_ways_to_save(rank, model, tmp_path):
    with pytest.raises(NotImplementedError, match="model.export would keep this rank's part only"):
        model.export(tmp_path / "exported")
    with pytest.raises(ValueError, match="ending in .keras or .weights.h5"):
        model.save(tmp_path / "old.h5")
    with pytest.raises(RuntimeError, match="(?s)partitioned over . ranks, which must save it together"):
        keras.src.saving.saving_lib.save_model(model, tmp_path / "inner.keras")
    keras.saving.save_model(model, tmp_path / "function.keras")
    assert (tmp_path / "function.keras").exists() == (rank == 0)
    x, y = part(data_of(8), 0, 1)
    refused = hvk.callbacks.on_rank_zero(keras.callbacks.BackupAndRestore(tmp_path / "backup"))
    with pytest.raises(NotImplementedError, match="would keep rank 0's part only"):
        model.fit(x, y, verbose=0, callbacks=[refused])


@pytest.mark.parametrize("model", OPTIMIZERS, indirect=True)
def test_commits_hold_whole_tables(model, mpi, tmp_path):
    folder = mpi.bcast(tmp_path)
    model.fit(*part(data_of(16), 0, 1), verbose=0)
    state = TensorFlowKerasState(model, epoch=3)
    state.commit_to(folder)
    state.commit(wait=True)
    committed = [variable.numpy() for variable in (*model.variables, *model.optimizer.variables)]
    model.fit(*part(data_of(16), 0, 1), verbose=0)
    again = TensorFlowKerasState(model, epoch=0)
    again.commit_to(folder)
    again.resume()
    again.sync()
    assert again.epoch == 3
    for variable, value in zip((*model.variables, *model.optimizer.variables), committed):
        np.testing.assert_array_equal(variable.numpy(), value)


def test_every_batch(rank, model, tmp_path):
    """`save_freq` in batches, by rank 0's ModelCheckpoint."""
    checkpoint = keras.callbacks.ModelCheckpoint(tmp_path / "{batch}.weights.h5", save_weights_only=True, save_freq=2)
    x, y = data_of(20)
    model.fit(x, y, batch_size=4, verbose=0, callbacks=[hvk.callbacks.on_rank_zero(checkpoint)])
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ([] if rank else ["2.weights.h5", "4.weights.h5"])


@pytest.mark.parametrize("setting", ["clipnorm", "global_clipnorm", "Adafactor"])
def test_norms_of_parts(model, setting):
    sgd = keras.optimizers.SGD
    optimizer = keras.optimizers.Adafactor() if setting == "Adafactor" else sgd(**{setting: 1.0})
    model.compile(hvk.DistributedOptimizer(optimizer), "mse")
    with pytest.raises(NotImplementedError, match=f"Received: .*{setting}"):
        model.fit(*data_of(4), verbose=0)


def test_a_table_of_another_shape(model):
    with pytest.raises(ValueError, match=r"expected a value of shape \(50, 4\). Received: \(49, 4\)"):
        model.get_layer("tables").load_own_variables({"0": np.zeros((49, 4))})


@pytest.mark.parametrize("shard", ["world", *in_full(None)])
def test_moving_averages_of_tables(hvd, rank, mpi, size, tmp_path, shard):
    """A file has them whole, and training goes on with this rank's part of them."""
    path = mpi.bcast(tmp_path / "ema.keras")
    model = give_first_tables(cut_model(("row_wise", "column_wise", "table_wise")))
    options = {"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": None}
    optimizer = keras.optimizers.Adagrad(0.1, initial_accumulator_value=0.0, **options)
    model.compile(hvk.DistributedOptimizer(optimizer, partition_state=shard), "mse")
    x, y = part(data_of(16), rank, size)
    model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
    model.save(path)
    mpi.barrier()
    again = hvk.load_model(path, custom_objects=CUSTOM_OBJECTS, partition_state=shard)
    again.fit(x, y, batch_size=4, shuffle=False, verbose=0)
    model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
    for ours, theirs in zip(again.variables, model.variables):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6, err_msg=ours.path)
    for ours, theirs in zip(again.optimizer.variables, model.optimizer.variables):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6, err_msg=ours.path)


@pytest.mark.parametrize("way", ["optimizer", "distribution"])
def test_rank_0_writes_for_an_optimizer_without_slots(hvd, rank, mpi, size, tmp_path, way):
    """Nothing is cut, and all ranks save and export to one path."""
    if size == 1:
        pytest.skip("one rank writes in any case")
    x = np.arange(24.0, dtype=np.float32).reshape(8, 3) + rank * (way == "optimizer")
    optimizer = keras.optimizers.SGD(1e-3)
    keras.distribution.initialize()
    under = smddp_tf.keras.distribution.DataParallel(partition_state="world").scope()
    with under if way == "distribution" else contextlib.nullcontext():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        if way == "optimizer":
            optimizer = hvk.DistributedOptimizer(optimizer, partition_state="world")
        model.compile(optimizer, "mse")
        model.fit(x, x[:, :2], batch_size=4, verbose=0)
        model.save(tmp_path / "saved.keras")
        if not (tracked := keras.__version__.startswith("3.3.")):  # `export` of Keras 3.3 writes the optimizer as well
            model.export(tmp_path / "exported")
    assert mpi.allgather(sorted(path.name for path in tmp_path.iterdir())) == [
        [*["exported"] * (not tracked), "saved.keras"],
        *[[]] * (size - 1),
    ]
