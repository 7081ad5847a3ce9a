"""`smddprun --dry-run` with an invented MPI, network and environment."""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Callable, Mapping, Sequence

import pytest

from smddp_tf.run import cli
from smddp_tf.run.hosts.network import Interface
from smddp_tf.run.launch import launch
from smddp_tf.run.launch.mpi import MPICH, OPEN_MPI, Mpi, NoMpirun

OPEN_MPI_4 = Mpi("/opt/bin/mpirun", OPEN_MPI, 4)
OPEN_MPI_5 = Mpi("/opt/bin/mpirun", OPEN_MPI, 5)
HYDRA = Mpi("/opt/bin/mpiexec.hydra", MPICH, 5)
LO, ETH0, DOCKER = (
    Interface("lo", "127.0.0.1", "255.0.0.0"),
    Interface("eth0", "10.0.0.1", "255.255.255.0"),
    Interface("docker0", "172.17.0.1", "255.255.0.0"),
)
ADDRESSES = {"h1": "10.0.0.1", "h2": "10.0.0.2", "far": "192.168.7.7"}


class DryRun:
    """Callable: the words of the line that `smddprun --dry-run ARGUMENTS` prints, or another launcher's `main`."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        main: Callable[[Sequence[str]], None] = cli.main,
    ):
        self._patch, self._capsys, self._main = monkeypatch, capsys, main
        self.mpi: Mpi | None = OPEN_MPI_5
        self.notes = ""

    def __call__(self, *arguments: str, env: Mapping[str, str] | None = None, cores: int = 64) -> list[str]:
        with self._patch.context() as patch:
            for name in list(os.environ):
                patch.delenv(name)
            for name, value in (env or {}).items():
                patch.setenv(name, value)
            patch.setattr(launch, "find_mpi", self._find_mpi)
            patch.setattr(launch, "local_interfaces", lambda: [LO, DOCKER, ETH0])
            patch.setattr(launch, "resolve", lambda names: [ADDRESSES[name] for name in names if name in ADDRESSES])
            patch.setattr("smddp_tf.run.launch.settings.is_this_host", lambda name: name in ("h1", "localhost"))
            module = "smddp_tf.run.launch.direct_command"
            patch.setattr(f"{module}.is_this_host", lambda name: name in ("h1", "localhost"))
            patch.setattr(os, "geteuid", lambda: 1000)
            patch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
            with pytest.raises(SystemExit) as ended:
                self._main(["--dry-run", *arguments])
        out, self.notes = self._capsys.readouterr()
        assert not ended.value.code, self.notes
        return shlex.split(out)

    def _find_mpi(self, _: str | None) -> Mpi:
        if self.mpi is None:
            raise NoMpirun("There is no mpirun.")
        return self.mpi


def values_of(words: list[str], flag: str, count: int = 1) -> list[str]:
    """What follows every `flag`, joined by a blank."""
    return [" ".join(words[at + 1 : at + 1 + count]) for at, word in enumerate(words) if word == flag]


def exports_of(words: list[str]) -> dict[str, str]:
    """The variables that reach the ranks by name, with their values, which stand before mpirun."""
    values = dict(word.split("=", 1) for word in itertools.takewhile(lambda word: "=" in word, words))
    names = values_of(words, "-x")
    assert not [name for name in names if "=" in name], "a value on mpirun's command line"
    return {name: values[name] for name in names if name in values}


def error_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What `smddprun ARGUMENTS` says when it refuses; one line, and an exit code that is not 0."""
    with pytest.raises(SystemExit) as ended:
        cli.main(list(arguments))
    assert ended.value.code
    return capsys.readouterr().err
