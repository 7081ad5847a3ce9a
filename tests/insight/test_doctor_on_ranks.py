"""hvd.doctor on ranks and nodes: the same report everywhere, and whose finding it is."""

from __future__ import annotations

import pytest

from smddp_tf.insight import doctor as module

pytestmark = pytest.mark.ranks("2")


def test_the_report_is_the_same_on_all_ranks(hvd, size):
    findings = hvd.doctor()
    assert hvd.allgather_object(findings) == [findings] * size
    looked_at = {finding.what for finding in findings}
    assert looked_at >= {"versions", "MPI", "network", "GPUs", "shared memory", "clock"}
    assert looked_at >= {"cores", "memory", "open files", "/dev/shm", "host names"}
    for what in looked_at:  # each rank has each of them once
        ranks = [rank for finding in findings if finding.what == what for rank in finding.ranks]
        assert sorted(ranks) == list(range(size)), what


def test_a_clock_that_is_ahead_is_found_on_its_rank(hvd, rank, size, monkeypatch):
    ahead = size - 1
    reads = 1e9 + 5.0 * (rank == ahead)  # standing clocks: a rank that does not get a core reads no other time
    monkeypatch.setattr(module.time, "time", lambda: reads)
    clocks = [finding for finding in hvd.doctor() if finding.what == "clock" and finding.level != "ok"]
    assert [finding.ranks for finding in clocks] == ([(ahead,)] if size > 1 else [])
    assert all("+5.00" in finding.found for finding in clocks)
