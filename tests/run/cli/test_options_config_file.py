"""horovodrun's --config-file."""

from __future__ import annotations

import pytest

from tests.run.run_dry import DryRun, error_of, exports_of, values_of


@pytest.fixture
def dry_run(monkeypatch, capsys) -> DryRun:
    return DryRun(monkeypatch, capsys)


CONFIG = """
num_proc: 3
verbose: 1
output_filename: /logs
params: {fusion_threshold_mb: 8, cache_capacity: 5}
autotune: {enabled: true, log_file: /log.csv}
timeline: {filename: /t.json, mark_cycles: true}
stall_check: {enabled: false, warning_time_seconds: 11}
library_options: {num_nccl_streams: 2}
logging: {level: INFO, hide_timestamp: true}
"""


def test_config_file(dry_run: DryRun, tmp_path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG)
    words = dry_run("--config-file", str(file), "--fusion-threshold-mb", "1", "t")
    assert values_of(words, "-np") == ["3"]
    found = exports_of(words)
    expected = {
        "HOROVOD_FUSION_THRESHOLD": str(1 << 20),  # the command line wins
        "HOROVOD_CACHE_CAPACITY": "5",
        "SMDDP_CACHE_CAPACITY": "5",
        "HOROVOD_AUTOTUNE": "1",
        "HOROVOD_AUTOTUNE_LOG": "/log.csv",
        "HOROVOD_TIMELINE": "/t.json",
        "HOROVOD_TIMELINE_MARK_CYCLES": "1",
        "HOROVOD_STALL_CHECK_DISABLE": "1",
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "11",
        "HOROVOD_NUM_NCCL_STREAMS": "2",
        "HOROVOD_LOG_LEVEL": "info",
        "HOROVOD_LOG_HIDE_TIME": "1",
    }
    assert expected.items() <= found.items()
    assert values_of(dry_run("-np", "2", "--config-file", str(file), "t"), "-np") == ["2"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("params: {fusion: 1}", "`fusion` under `params`"),
        ("unknown: 1", "`unknown`"),
        ("- 1", "keys and values"),
        ("params: 3", "section"),
        ("a: [", "not YAML"),
        ("elastic: {max_np: 3}\nnp: 2", "without MPI only"),
    ],
)
def test_config_file_that_is_wrong(capsys, tmp_path, content: str, words: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(content)
    assert words in error_of(capsys, "--config-file", str(file), "t")
