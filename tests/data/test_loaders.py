"""The loaders of `horovod.data`."""

from __future__ import annotations

import threading

import pytest

from smddp_tf.data.loaders import AsyncDataLoaderMixin, BaseDataLoader


class Numbers(BaseDataLoader):
    def __init__(self, count: int, fail_at: int | None = None) -> None:
        self.count, self.fail_at = count, fail_at

    def __len__(self) -> int:
        return self.count

    def _iterate(self):
        for number in range(self.count):
            if number == self.fail_at:
                raise RuntimeError("no more")
            yield number

    def _process_batch(self, batch):
        return batch * 10


class AsyncNumbers(AsyncDataLoaderMixin, Numbers):
    pass


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "smddp-data-loader"]


@pytest.mark.parametrize("size", [0, 1, 64])
def test_epochs(size: int) -> None:
    loader = AsyncNumbers(count=5, async_loader_queue_size=size)
    assert len(loader) == 5
    for _ in range(2):
        assert list(loader) == list(Numbers(5)) == [0, 10, 20, 30, 40]
    assert threads() == []


def test_an_error_comes_out_where_the_batches_do() -> None:
    batches = iter(AsyncNumbers(count=5, fail_at=2))
    assert [next(batches), next(batches)] == [0, 10]
    with pytest.raises(RuntimeError, match="no more"):
        next(batches)


def test_a_loader_that_is_given_up_ends_its_thread() -> None:
    loader = AsyncNumbers(2, False, 10_000)
    iterator = iter(loader)
    assert [next(iterator), next(iterator)] == [0, 10]
    assert threads() != []
    loader.close_async_loader()
    assert threads() == []
    assert list(iterator) == []
    iterator = iter(loader)
    next(iterator)
    iterator.close()
    assert threads() == []


def test_the_base_class_says_what_to_define() -> None:
    with pytest.raises(NotImplementedError, match="__len__"):
        len(BaseDataLoader())
    with pytest.raises(NotImplementedError, match="_iterate"):
        next(iter(BaseDataLoader()))
