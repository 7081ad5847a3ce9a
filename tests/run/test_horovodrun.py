"""`horovodrun`: Horovod's lines reach smddprun's launcher; what is not there is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from smddp_tf.aliases.table import HOROVOD_VERSION
from smddp_tf.run import cli, horovodrun
from tests.run.run_dry import DryRun, exports_of, values_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def dry_run(monkeypatch, capsys) -> DryRun:
    return DryRun(monkeypatch, capsys, horovodrun.main)


def printed(capsys, *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        horovodrun.main(arguments)
    assert ended.value.code == 0
    return capsys.readouterr().out


def error_of(capsys, *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        horovodrun.main(arguments)
    assert ended.value.code == 1
    [line] = capsys.readouterr().err.strip().splitlines()[-1:]
    assert line.startswith("horovodrun: ")
    return line


def test_a_line_for_horovod(dry_run: DryRun) -> None:
    line = "-np 3 -H h1:1,h2:2 -p 22 --verbose --mpi --network-interface eth0 --start-timeout 9 --fusion-threshold-mb 1"
    words = dry_run(*line.split(), "dp", "train", "-m", "workers", "input.json")
    assert values_of(words, "-np") == ["3"]
    assert words[-5:] == ["dp", "train", "-m", "workers", "input.json"]
    assert {"HOROVOD_FUSION_THRESHOLD": str(1 << 20), "SMDDP_START_TIMEOUT": "9"}.items() <= exports_of(words).items()
    assert "ignored" not in dry_run.notes


@pytest.mark.parametrize(
    ("flags", "note"),
    [
        ("--max-np 4", "--max-np 4 is ignored"),
        ("--elastic-timeout 9", "--elastic-timeout is ignored"),
        ("--blacklist-cooldown-range 1 2", "--blacklist-cooldown-range is ignored"),
        ("--autotune", "--autotune is ignored"),
    ],
)
def test_what_a_job_can_run_without_is_ignored(dry_run: DryRun, flags: str, note: str) -> None:
    assert values_of(dry_run("-np", "2", *flags.split(), "t"), "-np") == ["2"]
    [line] = dry_run.notes.splitlines()
    assert note in line


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--jsrun t", "jsrun is not supported"),
        ("--min-np 3 t", "--min-np 3"),
        ("--max-np 1 t", "--max-np must not be less than -np"),
        ("--host-discovery-script false t", "ended with exit code 1"),
        ("--host-discovery-script true --elastic-timeout 1 t", "Received: no host"),
        ("", "no command"),
    ],
)
def test_what_it_cannot_do_is_an_error(capsys, flags: str, words: str) -> None:
    assert words in error_of(capsys, "--dry-run", "-np", "2", *flags.split())


def test_hosts_from_a_script(dry_run: DryRun, tmp_path: Path) -> None:
    """The line of an operator for Kubernetes. The script has no hosts at first."""
    script = tmp_path / "discover.sh"
    script.write_text(f"cd {tmp_path}; test -e seen && echo h1 && echo h2:3; touch seen\n")
    words = dry_run(
        "-np", "4", "--min-np", "4", "--max-np", "8", "--slots-per-host", "2", "--elastic-timeout", "30",
        "--host-discovery-script", f"sh {script}", "t",
    )  # fmt: skip
    assert values_of(words, "-np") == ["4"]
    assert values_of(words, "-H") == ["h1:2,h2:3"]
    assert "gets no other hosts" in dry_run.notes


def test_ranks_of_a_script(dry_run: DryRun) -> None:
    """Without -np: the slots that there are, --max-np at most."""
    flags = ("--host-discovery-script", "echo h1:3")
    assert values_of(dry_run(*flags, "t"), "-np") == ["3"]
    assert values_of(dry_run("--max-np", "2", *flags, "t"), "-np") == ["2"]


def test_a_job_without_mpi_grows(dry_run: DryRun, tmp_path: Path) -> None:
    """Nothing is ignored then; smddprun takes the same flags."""
    hosts = tmp_path / "hosts"
    hosts.write_text("h1\nh2:3\n")
    flags = (
        "--host-discovery-script", f"cat {hosts}", "--slots-per-host", "2", "--min-np", "2", "--max-np", "4",
        "--elastic-timeout", "30", "--blacklist-cooldown-range", "1", "2",
    )  # fmt: skip
    words = dry_run("--gloo", *flags, "t")
    assert '[[["", 2], ["h2", 2]]' in words[-2]
    assert dry_run.notes == ""
    assert cli_dry_run(dry_run, "--no-mpi", *flags, "t")[-2:] == words[-2:]


def cli_dry_run(dry_run: DryRun, *arguments: str) -> list[str]:
    dry_run._main = cli.main
    return dry_run(*arguments)


def test_version_and_build(capsys) -> None:
    project = (ROOT / "packaging" / "horovod" / "pyproject.toml").read_text(encoding="utf-8")
    assert printed(capsys, "--version") == f"{HOROVOD_VERSION}+smddp\n"
    assert f'version = "{HOROVOD_VERSION}+smddp"' in project
    lines = printed(capsys, "--check-build").splitlines()
    assert lines[0] == f"Horovod v{HOROVOD_VERSION}+smddp:"
    for title, entries in {
        "Available Frameworks:": ["    [X] TensorFlow", "    [ ] PyTorch", "    [ ] MXNet"],
        "Available Controllers:": ["    [X] MPI", "    [ ] Gloo"],
    }.items():
        at = lines.index(title)
        assert lines[at + 1 : at + 1 + len(entries)] == entries
    of_operations = lines[lines.index("Available Tensor Operations:") :]
    assert {"    [X] MPI", "    [ ] Gloo", "    [ ] DDL", "    [ ] CCL"} <= set(of_operations)
