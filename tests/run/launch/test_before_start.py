"""What the launcher says before it starts mpirun."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace

import pytest

from smddp_tf.exceptions import LaunchError
from smddp_tf.run.hosts.hosts import Host
from smddp_tf.run.launch import before_start
from smddp_tf.run.launch.settings import Settings
from tests.run.run_dry import ETH0, LO, DryRun, error_of, values_of

GIB = 1 << 30


def settings(ranks: int = 2, **more) -> Settings:
    return Settings(ranks, (Host("localhost", ranks),), **more)


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> None:
    found = SimpleNamespace(available=20 * GIB, total=24 * GIB)
    monkeypatch.setattr(before_start.psutil, "virtual_memory", lambda: found)


def test_the_number_of_ranks(monkeypatch, capsys) -> None:
    wrong = "is not a valid integer. Expected a number after a blank: -np"
    assert f"'two' {wrong} 4.\n" in error_of(capsys, "-np", "two", "t")
    for form in (["--np", "2"], ["-np2"], ["-n", "2"], ["-n2"], ["--np=2"]):
        assert "-np 2 " in " ".join(DryRun(monkeypatch, capsys)(*form, "t"))


def test_programs_that_are_not_there(monkeypatch, tmp_path) -> None:
    (tmp_path / "data").write_text("")
    monkeypatch.chdir(tmp_path)
    path = {"PATH": f"{tmp_path}:/bin"}

    def said(*command: str, **more) -> str:
        return before_start.missing_program(command, settings(**more), path)

    assert said("no-such-program-xyz", "train.py").startswith(
        "'no-such-program-xyz' cannot be started: No such file or directory. Expected a script "
    )
    (tmp_path / "python").write_text("")
    assert "directory. Did you mean 'python'? Expected" in said("pyhton", "train.py")
    assert f"PATH is {tmp_path}:/bin. No rank began." in said("pyhton")
    assert said("./data").startswith("'./data' cannot be started: Permission denied.")
    assert said(sys.executable, "train.py").startswith(f"There is no script 'train.py' in {tmp_path}, where ")
    for found in (("sh", "train.py"), (sys.executable, "data"), (sys.executable, "-m", "t"), (sys.executable,)):
        assert not said(*found)
    # What the ranks alone can know.
    assert not said(sys.executable, "train.py", mpi_args=("--wdir", "/elsewhere"))
    assert not before_start.missing_program(["t"], Settings(2, (Host("203.0.113.9", 2),)), path)
    assert not said("t-program", variables={"PATH": _folder_with(tmp_path, "t-program")})


def _folder_with(folder, name: str) -> str:
    (folder / "more").mkdir()
    (folder / "more" / name).write_text("")
    (folder / "more" / name).chmod(0o755)
    return str(folder / "more")


def test_a_network_interface_that_does_not_exist() -> None:
    def said(settings: Settings) -> list[str]:
        return list(before_start.notes(settings, [LO, ETH0]))

    assert said(settings(network_interfaces=("lo", "10.0.0.0/8"))) == []
    here = re.escape("There are: lo (127.0.0.0/8), eth0 (10.0.0.0/24).")
    with pytest.raises(LaunchError, match=f"--network-interfaces nope0: expected an interface of this host, .* {here}"):
        said(settings(network_interfaces=("lo", "nope0")))


def test_more_ranks_than_memory() -> None:
    assert not list(before_start.notes(settings(50), [LO]))
    (note,) = before_start.notes(settings(100), [LO])
    assert note.startswith("100 ranks on this host need 39 GiB of memory ")
    assert "20 GiB are free" in note
    assert not list(before_start.notes(Settings(100, (Host("203.0.113.9", 100),)), [LO]))


def test_a_variable_that_is_not_set(monkeypatch, capsys) -> None:
    dry_run = DryRun(monkeypatch, capsys)
    line = dry_run("-np", "2", "-x", "SET", "-x", "UNSET", "t", env={"SET": "1"})
    assert values_of(line, "-x") == ["PYTHONUNBUFFERED", "SET"]
    assert dry_run.notes.startswith("smddprun: -x UNSET: not set here, so no rank gets it. ")


def test_a_line_of_mpirun_that_is_of_no_use(capsys) -> None:
    from smddp_tf.run.output.console import MPIRUN
    from smddp_tf.run.output.output import Output

    with Output(1) as output:
        output.write(MPIRUN, 1, b"[a:1] plm:ssh: Warning: setpgid(7,7) failed in parent\nmore\n")
    assert capsys.readouterr().err == "more\n"
