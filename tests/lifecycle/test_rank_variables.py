"""The variables that give a process its rank."""

from __future__ import annotations

from smddp_tf.lifecycle.placement import Placement
from smddp_tf.lifecycle.rank_variables import variables_of, without_rank_variables


def test_variables_of_a_rank() -> None:
    assert variables_of(Placement(3, 4, 1, 2)) == {
        "HOROVOD_RANK": "3", "HOROVOD_SIZE": "4", "HOROVOD_LOCAL_RANK": "1", "HOROVOD_LOCAL_SIZE": "2",
        "SMDATAPARALLEL_LOCAL_RANK": "1", "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1",
    }  # fmt: skip
    assert variables_of(Placement(3)) == {"HOROVOD_RANK": "3", "RANK": "3"}


def test_a_job_from_inside_a_rank_is_a_new_one() -> None:
    kept = {"OMPI_MCA_pml": "ob1", "PRTE_MCA_x": "y", "PATH": "/bin"}
    rank = {"OMPI_COMM_WORLD_RANK": "0", "PMIX_NAMESPACE": "n", "PMI_FD": "7", "OMPI_MCA_ess": "pmi",
            "SMDDP_RUN_KEY": "k", "HOROVOD_RANK": "1", "HOROVOD_CROSS_SIZE": "2", "MASTER_ADDR": "h1",
            "MASTER_PORT": "9", "RANK": "1"}  # fmt: skip
    assert without_rank_variables({**kept, **rank}) == kept
    of_the_user = {"MASTER_ADDR": "h1", "RANK": "8"}  # the rank of an adapter, for instance
    assert without_rank_variables(of_the_user) == of_the_user
