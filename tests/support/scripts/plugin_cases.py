"""Tests that go wrong on purpose, for tests/test_mpi_plugin.py. Not collected: the name has no `test_`."""

import time

import pytest
from mpi4py import MPI

RANK = MPI.COMM_WORLD.Get_rank()


class TestOutcomes:
    def test_passes_everywhere(self):
        pass

    def test_fails_on_rank_1(self):
        assert RANK != 1, "rank one is bad"

    def test_skips_on_rank_0(self):
        if RANK == 0:
            pytest.skip("only here")

    @pytest.fixture
    def broken_on_rank_2(self):
        assert RANK != 2, "rank two has no fixture"

    def test_setup_fails_on_rank_2(self, broken_on_rank_2):
        raise AssertionError("must not be reached on any rank")


class TestStuck:
    @pytest.mark.deadline(3)
    def test_rank_2_sleeps(self):
        if RANK == 2:
            time.sleep(100)


class TestDies:
    def test_rank_1_exits(self):
        if RANK == 1:
            import os

            os._exit(3)
