"""Start and communicator of smddp_tf.sdp, as scripts call them."""

from __future__ import annotations

import pytest

from smddp_tf import sdp
from smddp_tf.sdp.exceptions import SMDDPAlreadyInitializedError

pytestmark = pytest.mark.ranks("1", "2")


def test_init_may_be_called_once(hvd, rank, size):
    with pytest.raises(SMDDPAlreadyInitializedError, match="init called more than once") as caught:
        sdp.init()
    assert isinstance(caught.value, RuntimeError)
    assert "smdistributed.dataparallel is already initialized." in str(caught.value)
    assert (sdp.rank(), sdp.size()) == (rank, size)
    assert (sdp.local_rank(), sdp.local_size()) == (hvd.local_rank(), hvd.local_size())


def test_worker_comm(hvd, rank, size):
    comm = sdp.get_worker_comm()
    assert (comm.Get_rank(), comm.Get_size()) == (rank, size)
    assert comm.allgather({"rank": rank}) == [{"rank": other} for other in range(size)]
    comm.Barrier()
    assert sdp.get_worker_comm() is comm
