"""What `fit` and `evaluate` print in a job of several ranks: one progress bar, and no warning that helps nobody."""

from __future__ import annotations

import warnings

import keras
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from tests.support.distributed_keras import distributed
from tests.support.keras_training import dense_data, dense_model, part_of
from tests.variants import in_full

pytestmark = pytest.mark.ranks("2")

KERAS_WARNS = not keras.__version__.startswith("3.3.")  # of `shuffle` where the data have an order of their own


def compiled(optimizer: keras.optimizers.Optimizer) -> keras.Model:
    model = dense_model()
    model.compile(optimizer, loss="mse")
    return model


def wrapped() -> keras.Model:
    return compiled(hvk.DistributedOptimizer(keras.optimizers.SGD(0.1)))


def rows_of(rank: int, size: int) -> tuple:
    return tuple(part_of(array, rank, size) for array in dense_data(size, 4))


@pytest.mark.parametrize("verbose", [1, *in_full("auto", 2)])
def test_only_rank_zero_shows_progress(hvd, rank, size, capsys, verbose):
    x, y = rows_of(rank, size)
    wrapped().fit(x, y, batch_size=4, verbose=verbose)
    assert ("loss" in capsys.readouterr().out) == (rank == 0)


@pytest.mark.parametrize("verbose", ["auto", 2, *in_full(1)])
def test_only_rank_zero_shows_progress_under_a_distribution(hvd, rank, capsys, verbose):
    x, y = dense_data(2, 4)
    with distributed():
        model = compiled(keras.optimizers.SGD(0.1))
        for call in (model.fit, model.evaluate):
            call(x, y, batch_size=4, verbose=verbose)
            assert ("loss" in capsys.readouterr().out) == (rank == 0)
        model.predict(x, verbose=verbose)
        assert bool(capsys.readouterr().out) == (rank == 0)


def test_only_rank_zero_shows_the_progress_of_an_evaluation(hvd, rank, size, capsys):
    x, y = rows_of(rank, size)
    hvk.evaluate(wrapped(), x, y, verbose=2)
    assert ("loss" in capsys.readouterr().out) == (rank == 0)


def test_every_rank_shows_progress_if_asked_to(hvd, rank, size, capsys, monkeypatch):
    monkeypatch.setenv("SMDDP_ALL_PROGRESS_BARS", "1")
    x, y = rows_of(rank, size)
    wrapped().fit(x, y, batch_size=4, verbose=2)
    assert "loss" in capsys.readouterr().out


def test_a_rank_that_trains_alone_shows_progress(hvd, rank, size, capsys):
    x, y = rows_of(rank, size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it trains alone
        compiled(keras.optimizers.SGD(0.1)).fit(x, y, batch_size=4, verbose=2)
    assert "loss" in capsys.readouterr().out


def test_a_dataset_gives_no_warning_of_shuffle(hvd, rank, size):
    data = tf.data.Dataset.from_tensor_slices(rows_of(rank, size)).batch(4)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*shuffle.*")
        wrapped().fit(data, verbose=0)
        if rank == 0 and KERAS_WARNS:
            with pytest.raises(UserWarning, match="`shuffle=True` was passed"):
                keras.src.trainers.data_adapters.get_data_adapter(data, shuffle=True)  # Keras still has it


def test_a_generator_gives_no_warning_of_shuffle(hvd, rank, size):
    x, y = rows_of(rank, size)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*shuffle.*")
        wrapped().fit(((x[:4], y[:4]) for _ in range(2)), steps_per_epoch=2, verbose=0)


def test_shuffle_that_a_user_asks_for_gives_one_warning(hvd, rank, size):
    data = tf.data.Dataset.from_tensor_slices(rows_of(rank, size)).batch(4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        wrapped().fit(data, verbose=0, shuffle=True)
    assert sum("shuffle=True" in str(each.message) for each in caught) == (rank == 0 and KERAS_WARNS)


@pytest.mark.parametrize("name", ["ModelCheckpoint", "CSVLogger"])
def test_a_file_of_all_ranks_is_warned_of(hvd, rank, size, shared_folder, name):
    """Rank 0 says which, and what to write."""
    x, y = rows_of(rank, size)

    def warned(path, put=lambda callback: callback) -> list[str]:
        callback = put(getattr(keras.callbacks, name)(str(shared_folder / path)))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            wrapped().fit(x, y, batch_size=4, verbose=0, callbacks=[callback])
        return [str(each.message) for each in caught if "ranks write the same" in str(each.message)]

    assert not warned("rank0.keras", hvk.callbacks.on_rank_zero)
    assert not warned(f"rank{rank}.keras")
    found = warned("model.keras")
    if size == 1 or rank != 0:
        assert not found
        return
    (text,) = found
    assert f"{size} ranks write the same {name}: {shared_folder / 'model.keras'}" in text
    assert f"on_rank_zero(keras.callbacks.{name}(...))" in text
