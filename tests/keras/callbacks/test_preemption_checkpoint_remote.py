"""PreemptionCheckpoint and BestModelCheckpoint in an object store, a real server that rank 0 starts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

import smddp_tf.keras as hvk
from tests.keras.callbacks.test_best_model_checkpoint import run_epochs
from tests.keras.callbacks.test_preemption_checkpoint import BATCH, EPOCH, REST, Job, up_to
from tests.object_store import BUCKET, object_store, variables, why_none
from tests.support.callback_models import model_of_rank
from tests.support.keras_training import dense_model, flat_weights

pytestmark = [pytest.mark.ranks("2"), pytest.mark.skipif(bool(why_none()), reason=why_none())]


@pytest.fixture(scope="module")
def store(mpi) -> Iterator[Any]:
    """A client of the server, to which s3:// leads on all ranks."""
    import boto3

    with ExitStack() as stack:
        url = mpi.bcast(stack.enter_context(object_store()) if mpi.rank == 0 else None)
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in variables(url).items():
            patch.setenv(name, value)
        yield boto3.client("s3")
        mpi.barrier()


def keys(store: Any, folder: str) -> list[str]:
    found = store.list_objects_v2(Bucket=BUCKET, Prefix=f"{folder}/").get("Contents", [])
    return [each["Key"].split("/", 1)[1] for each in found]


def test_a_preempted_training_goes_on_from_the_store(hvd, rank, size, mpi, store):
    job = Job(rank, size, f"s3://{BUCKET}/preempted")
    first, _ = job.fit(dense_model(), preempted=True, name="run")
    assert first.seen == up_to(EPOCH, BATCH)
    assert keys(store, "preempted") == ["run.commit-000000000001"]
    mpi.barrier()
    second, starts = Job(rank, size, job.folder).fit(dense_model(), name="run")
    assert second.seen == REST
    np.testing.assert_array_equal(starts, first.weights)
    mpi.barrier()
    assert keys(store, "preempted") == []


def test_a_store_that_cannot_be_written_is_an_error_on_every_rank(hvd, rank, size, store):
    with pytest.raises(OSError, match=r"Rank 0 could not write a commit to s3://no-such-bucket/x.*does not exist"):
        Job(rank, size, "s3://no-such-bucket/x").fit(dense_model(), preempted=True)
    with pytest.raises(ValueError, match="Received: 'nowhere://x'"):
        hvk.callbacks.PreemptionCheckpoint("nowhere://x")


@pytest.mark.parametrize("ending", [".keras", ".weights.h5"])
def test_the_best_model_is_uploaded_whole(hvd, rank, mpi, store, ending):
    model = model_of_rank(rank)
    url = f"s3://{BUCKET}/best{ending}/epoch{{epoch}}{ending}"
    only = ending == ".weights.h5"
    checkpoint = hvk.callbacks.BestModelCheckpoint(filepath=url, save_weights_only=only)
    run_epochs(checkpoint, model, [1.0, 2.0, 0.5])
    assert checkpoint.filepath == url
    mpi.barrier()
    assert keys(store, f"best{ending}") == [f"epoch1{ending}", f"epoch3{ending}"]
    expected = mpi.bcast(flat_weights(model))
    if not only:
        loaded = hvk.load_model(f"s3://{BUCKET}/best.keras/epoch3.keras")
        np.testing.assert_array_equal(flat_weights(loaded), expected)


def test_what_is_wrong_with_a_url_of_the_best_model_is_told(hvd, rank, store):
    with pytest.raises(ValueError, match="Received: 'nowhere://b/best.keras'"):
        hvk.callbacks.BestModelCheckpoint(filepath="nowhere://b/best.keras")
    checkpoint = hvk.callbacks.BestModelCheckpoint(filepath="s3://no-such-bucket/best.keras")
    if rank == 0:
        with pytest.raises(OSError, match="s3://no-such-bucket/best.keras: .*does not exist"):
            run_epochs(checkpoint, model_of_rank(rank), [1.0])
    else:
        run_epochs(checkpoint, model_of_rank(rank), [1.0])
    with pytest.raises(OSError, match="s3://bucket/nothing.keras"):
        hvk.load_model(f"s3://{BUCKET}/nothing.keras")
