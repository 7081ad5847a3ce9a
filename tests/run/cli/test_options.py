"""horovodrun's flags: the variables they become, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from smddp_tf.run import cli
from smddp_tf.run.cli.options import KNOBS
from tests.run.run_dry import DryRun, error_of, exports_of, values_of

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def dry_run(monkeypatch, capsys) -> DryRun:
    return DryRun(monkeypatch, capsys)


def exports(dry_run: DryRun, *arguments: str, **more) -> dict[str, str]:
    return exports_of(dry_run("-np", "2", *arguments, "t", **more))


FLAGS = {
    "--fusion-threshold-mb 32": {"HOROVOD_FUSION_THRESHOLD": "33554432", "SMDDP_BUCKET_BYTES": "33554432"},
    "--fusion-threshold-mb 0": {"HOROVOD_FUSION_THRESHOLD": "0"},
    "--cycle-time-ms 3.5": {"HOROVOD_CYCLE_TIME": "3.5"},
    "--cache-capacity 0": {"HOROVOD_CACHE_CAPACITY": "0", "SMDDP_CACHE_CAPACITY": "0"},
    "--hierarchical-allreduce": {"HOROVOD_HIERARCHICAL_ALLREDUCE": "1"},
    "--no-hierarchical-allgather": {"HOROVOD_HIERARCHICAL_ALLGATHER": "0"},
    "--torus-allreduce": {"HOROVOD_TORUS_ALLREDUCE": "1"},
    "--autotune": {"HOROVOD_AUTOTUNE": "1", "SMDDP_AUTOTUNE": "1"},
    "--no-autotune": {"HOROVOD_AUTOTUNE": "0"},
    "--autotune-log-file /a.csv": {"HOROVOD_AUTOTUNE_LOG": "/a.csv"},
    "--autotune-warmup-samples 2": {"HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "2"},
    "--autotune-steps-per-sample 4": {"HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": "4"},
    "--autotune-bayes-opt-max-samples 8": {"HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES": "8"},
    "--autotune-gaussian-process-noise 0.5": {"HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE": "0.5"},
    "--timeline-filename /t.json": {"HOROVOD_TIMELINE": "/t.json"},
    "--timeline-filename DYNAMIC": {"HOROVOD_TIMELINE": "DYNAMIC"},
    "--monitor /r": {"SMDDP_MONITOR": "/r"},
    "--timeline-mark-cycles": {"HOROVOD_TIMELINE_MARK_CYCLES": "1"},
    "--no-timeline-mark-cycles": {"HOROVOD_TIMELINE_MARK_CYCLES": "0"},
    "--no-stall-check": {"HOROVOD_STALL_CHECK_DISABLE": "1"},
    "--stall-check": {"HOROVOD_STALL_CHECK_DISABLE": "0"},
    "--stall-check-warning-time-seconds 5": {
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "5",
        "SMDDP_STALL_WARN_SECONDS": "5",
    },
    "--stall-check-shutdown-time-seconds 9": {
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "9",
        "SMDDP_STALL_ERROR_SECONDS": "9",
    },
    "--mpi-threads-disable": {"HOROVOD_MPI_THREADS_DISABLE": "1"},
    "--num-nccl-streams 2": {"HOROVOD_NUM_NCCL_STREAMS": "2"},
    "--thread-affinity 1": {"HOROVOD_THREAD_AFFINITY": "1"},
    "--gloo-timeout-seconds 3": {"HOROVOD_GLOO_TIMEOUT_SECONDS": "3"},
    "--log-level DEBUG": {"HOROVOD_LOG_LEVEL": "debug", "SMDDP_LOG_LEVEL": "debug"},
    "--log-level FATAL": {"HOROVOD_LOG_LEVEL": "fatal", "SMDDP_LOG_LEVEL": "error"},
    "--log-without-timestamp": {"HOROVOD_LOG_HIDE_TIME": "1", "SMDDP_LOG_TIMESTAMP": "0"},
    "--log-with-timestamp": {"HOROVOD_LOG_HIDE_TIME": "0", "SMDDP_LOG_TIMESTAMP": "1"},
    "--start-timeout 7": {"HOROVOD_START_TIMEOUT": "7", "SMDDP_START_TIMEOUT": "7"},
    "-x NAME=a=b": {"NAME": "a=b"},
}


@pytest.mark.parametrize("flags", FLAGS)
def test_flags_become_variables(dry_run: DryRun, flags: str) -> None:
    found = exports(dry_run, *flags.split())
    assert FLAGS[flags].items() <= found.items()
    assert set(found) - {"PYTHONUNBUFFERED"} <= {*FLAGS[flags], *(knob.own_variable for knob in KNOBS)}


def test_flags_without_meaning_leave_a_note(dry_run: DryRun) -> None:
    exports(dry_run, "--cycle-time-ms", "3", "--fusion-threshold-mb", "1")
    assert dry_run.notes.count("--cycle-time-ms is ignored: ") == 1
    assert "--cycle-time-ms" in dry_run.notes


def test_our_variables_are_the_ones_the_engine_reads() -> None:
    documented = (ROOT / "docs" / "environment.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^- \*\*`(SMDDP_\w+)`\*\* \([^)]*?(HOROVOD_\w+)?`?\)", documented, re.MULTILINE))
    for knob in KNOBS:
        if knob.own_variable:
            assert rows.get(knob.own_variable) == knob.variable
    aliases = {name: ours for ours, name in rows.items()}
    missing = [knob.option for knob in KNOBS if knob.variable in aliases and not knob.own_variable]
    assert not missing, "the user's SMDDP_* variable would win over these flags"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("-np 2 --no-mpi --mpi-args -x t", "--no-mpi and --mpi-args contradict each other"),
        ("-np 2 --gloo --fabric ofi t", "--no-mpi and --fabric ofi contradict each other"),
        ("-np 2 --jsrun t", "jsrun"),
        ("-np 2 --min-np 3 t", "--min-np 3"),
        ("-np 2 --min-np 0 t", "--min-np 0"),
        ("-np 2 --max-num-proc 4 t", "--max-np 4"),
        ("-np 2 --host-discovery-script ./d.sh t", "without MPI only: smddprun --no-mpi --host-discovery-script"),
        ("-np 0 t", "1 or more"),
        ("-np 3 -H a:1,b:1 t", "3 slots"),
        ("-H a:x t", "a:x"),
        ("-H a:1 --hostfile f t", "not both"),
        ("--hostfile /nowhere t", "/nowhere"),
        ("-np 2 --fusion-threshold-mb -1 t", "0 or more"),
        ("-np 2 --start-timeout 0 t", "positive"),
        ("-np 2", "no command"),
        ("-np 2 --mpirun /nowhere/mpirun t", "/nowhere/mpirun"),
        ("-np two t", "not a valid integer"),
        ("-np 2 --no-such-flag t", "No such option"),
    ],
)
def test_refusals_say_why(capsys, arguments: str, words: str) -> None:
    assert words in error_of(capsys, "--dry-run", *arguments.split())


def test_elastic_flags_without_effect(dry_run: DryRun) -> None:
    flags = "--min-np 2 --max-np 2 --reset-limit 3 --elastic-timeout 5 --blacklist-cooldown-range 1 2 --disable-cache"
    assert values_of(dry_run("-np", "2", *flags.split(), "--mpi", "t"), "-np") == ["2"]


def test_help_is_in_groups_and_says_nothing_of_what_has_no_effect(capsys) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    shown = capsys.readouterr().out
    headings = ["Ranks and hosts:", "The program:", "Output:", "Look at a job:", "MPI and networks:", "Other:"]
    places = [shown.index(f"\n{heading}\n") for heading in headings]
    assert places == sorted(places)
    assert "Ignored" not in shown
    assert shown.count("[COMMAND]...") == 1  # in the first line, and not among the options
    for knob in KNOBS:
        assert (f"--{knob.option} " in shown) == (not knob.ignored), knob.option


def test_a_shell_completes_options(monkeypatch, capsys) -> None:
    for name, value in {
        "_SMDDPRUN_COMPLETE": "bash_complete",
        "COMP_WORDS": "smddprun --moni",
        "COMP_CWORD": "1",
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        cli.main([])
    assert capsys.readouterr().out.splitlines() == ["plain,--monitor"]
