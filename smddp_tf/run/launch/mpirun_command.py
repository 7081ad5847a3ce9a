"""The mpirun line of a job, for Open MPI 4 and 5 and for MPICH's hydra."""

from __future__ import annotations

import fnmatch
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from smddp_tf import urls
from smddp_tf.run.hosts.network import Choice
from smddp_tf.run.launch.fabric import mpich_variables, open_mpi_parameters
from smddp_tf.run.launch.mpi import OPEN_MPI, Mpi
from smddp_tf.run.launch.settings import Settings

# Variables that belong to this host or this shell. All others travel to the ranks on other hosts, as with horovodrun.
_STAY = (
    "_", "BASHOPTS", "BASH_*", "DBUS_*", "DISPLAY", "GROUPS", "HISTFILE", "HOME", "HOST", "HOSTNAME", "LOGNAME",
    "LS_COLORS", "MAIL", "OLDPWD", "OMPI_*", "PMIX_*", "PMI_*", "PRTE_*", "PS1", "PWD", "SHELL", "SHELLOPTS", "SHLVL",
    "SLURM*", "SSH_*", "TERM*", "TMP", "TMPDIR", "TEMP", "UID", "USER", "XAUTHORITY", "XDG_*",
)  # fmt: skip

# Our parameters for Open MPI 4, and their names in 5, whose run-time system has its own.
_OF_SSH = ("args", "no_tree_spawn", "num_concurrent")
_PRTE = {f"plm_rsh_{name}": f"plm_ssh_{name}" for name in _OF_SSH}
_PRTE |= {f"oob_tcp_if_{name}": f"prte_if_{name}" for name in ("include", "exclude")}
# Parameters that 5 has kept, as its run-time system's.
_RUNTIME = ("plm_", "oob_")
_PROBES = 4
# In mpirun's own environment other values of these would change mpirun itself, ssh and the daemons. They are no
# secrets, so they reach the ranks by mpirun's command line.
_FOR_RANKS_ONLY = ("LD_*", "PATH", "TMPDIR")


class MpirunCommand(NamedTuple):
    """The words up to the ranks' command.

    Attributes:
        words: mpirun and its arguments. No value of a variable, because all users of this host can read them; but for
            those of `_FOR_RANKS_ONLY`.
        environment: variables for mpirun itself, and through it for the ranks.
        forwards_all: whether every variable of mpirun's environment travels to ranks on other hosts.
        is_direct: whether it is our own, of a job without MPI (`direct_command`).
    """

    words: tuple[str, ...]
    environment: Mapping[str, str]
    forwards_all: bool = False
    is_direct: bool = False

    def shown(self, command: Sequence[str]) -> str:
        """For a shell, without the passwords in URLs."""
        before = [f"{name}={shlex.quote(urls.shown(value))}" for name, value in self.environment.items()]
        return " ".join([*before, shlex.join([*self.words, *command])])


def build_command(
    settings: Settings, mpi: Mpi, choice: Choice, environment: Mapping[str, str], cores: int, root: bool
) -> MpirunCommand:
    """The line of a job.

    Args:
        settings: the job.
        mpi: whose line.
        choice: of network interfaces.
        environment: of the launcher; its names are forwarded to other hosts.
        cores: of this host; others are taken to be alike.
        root: who starts it.
    """
    if mpi.kind != OPEN_MPI:  # hydra checks neither cores nor users, and forwards every variable
        return _hydra_command(settings, mpi, choice, environment)
    given, variables = settings.mpi_args, settings.variables
    line = [mpi.mpirun, "-np", str(settings.ranks), "-H", ",".join(map(str, settings.hosts))]
    line += ["--allow-run-as-root"] if root else []
    if settings.binding_args:
        line += settings.binding_args
    else:
        line += [] if _sets(given, "bind-to") else ["--bind-to", "none"]
        line += [] if _sets(given, "map-by") else ["--map-by", "slot"]
    crowded = max(host.slots for host in settings.hosts) > cores
    line += ["--oversubscribe"] if crowded and not _sets(given, "map-by") else []
    for name, value in _open_mpi_parameters(settings, mpi, choice, environment, crowded):
        if not sets_parameter(given, name) and not _is_set(environment, name):
            line += _words_for_parameter(mpi, name, value)
    values = _changed(variables, environment, on_the_line=True)  # of the others Open MPI takes mpirun's own
    exports = [f"{name}={values[name]}" if name in values else name for name in sorted(variables)]
    if settings.remote_hosts:
        exports += [name for name in sorted(environment) if name not in variables and travels(name)]
    line += [word for export in exports for word in ("-x", export)]
    return MpirunCommand((*line, *given), _changed(variables, environment, on_the_line=False))


def travels(name: str) -> bool:
    """Whether ranks on other hosts get this variable of the launcher's environment."""
    return bool(re.fullmatch(r"[A-Za-z_]\w*", name)) and not _matches(name, _STAY)


def _words_for_parameter(mpi: Mpi, name: str, value: str) -> list[str]:
    """Open MPI's words for a parameter, by its name in Open MPI 4."""
    if mpi.major < 5:
        return ["--mca", name, value]
    return ["--prtemca" if name in _PRTE or name.startswith(_RUNTIME) else "--mca", _PRTE.get(name, name), value]


def _changed(variables: Mapping[str, str], environment: Mapping[str, str], on_the_line: bool) -> dict[str, str]:
    """The new variables whose values the ranks get by the command line, or the others."""
    new = {name: value for name, value in sorted(variables.items()) if environment.get(name) != value}
    return {name: value for name, value in new.items() if _matches(name, _FOR_RANKS_ONLY) == on_the_line}


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _open_mpi_parameters(
    settings: Settings, mpi: Mpi, choice: Choice, environment: Mapping[str, str], crowded: bool
) -> list[tuple[str, str]]:
    of_ranks, include = {**environment, **settings.variables}, ",".join(choice.include)
    between_hosts = {"oob_tcp_if_include": include, "plm_rsh_args": shlex.join(settings.ssh), **_keepalive(of_ranks)}
    chosen = {
        "btl_tcp_if_include": include,
        "btl_tcp_if_exclude": ",".join(choice.exclude),
        **(between_hosts if settings.remote_hosts else {}),
        "mpi_yield_when_idle": "1" if crowded else "",
        "plm_base_verbose": "5" if settings.verbose > 1 else "",
    }
    given = [(name, value) for name, value in chosen.items() if value]
    return [*open_mpi_parameters(settings.fabric, mpi.major, of_ranks), *given]


def _keepalive(environment: Mapping[str, str]) -> dict[str, str]:
    """Makes mpirun's daemons end when they have lost mpirun, after our ranks have had time to name it.

    By default they wait for 8 minutes.
    """
    try:
        heartbeat = float(environment.get("SMDDP_HEARTBEAT_TIMEOUT", "15"))
    except ValueError:
        return {}  # the ranks say what is wrong with it
    if heartbeat <= 0:
        return {}
    interval = math.ceil(heartbeat / 3)  # four of them take a third longer than the ranks do
    settings = {"time": 2 * interval, "intvl": interval, "probes": _PROBES}
    return {f"oob_tcp_keepalive_{name}": str(number) for name, number in settings.items()}


def _hydra_command(settings: Settings, mpi: Mpi, choice: Choice, environment: Mapping[str, str]) -> MpirunCommand:
    line = [mpi.mpirun, "-n", str(settings.ranks), *_hydra_hosts(settings)]
    if settings.binding_args or not _sets(settings.mpi_args, "bind-to"):
        line += settings.binding_args or ["-bind-to", "none"]
    if settings.remote_hosts and choice.name and not _sets(settings.mpi_args, "iface"):
        line += ["-iface", choice.name]
    line += ["-verbose"] if settings.verbose > 1 else []
    for name, value in _changed(settings.variables, environment, on_the_line=True).items():
        line += ["-genv", name, value]
    extra = {"HYDRA_LAUNCHER_EXTRA_ARGS": shlex.join(settings.ssh)} if settings.ssh else {}
    variables = _changed({**mpich_variables(settings.fabric), **settings.variables}, environment, on_the_line=False)
    return MpirunCommand((*line, *settings.mpi_args), {**variables, **extra}, forwards_all=True)


def _hydra_hosts(settings: Settings) -> list[str]:
    names = [host.name if settings.remote_hosts else "localhost" for host in settings.hosts]
    slots = {host.slots for host in settings.hosts}
    if len(slots) == 1:
        return ["-hosts", ",".join(names), "-ppn", str(slots.pop())]
    return ["-hosts", ",".join(f"{name}:{host.slots}" for name, host in zip(names, settings.hosts))]


def _sets(words: Sequence[str], option: str) -> bool:
    return any(word.lstrip("-") == option for word in words if word.startswith("-"))


def sets_parameter(words: Sequence[str], name: str) -> bool:
    """True when the user's words set the parameter, or its opposite: _include and _exclude exclude each other."""
    names = {*_with_opposite(name), _PRTE.get(name, name)}
    pairs = zip(words, words[1:])
    return any(word.lstrip("-") in ("mca", "prtemca", "pmixmca", "gmca") and next_ in names for word, next_ in pairs)


def names_agent(words: Sequence[str], environment: Mapping[str, str]) -> bool:
    """True when the user reaches hosts by another program than ssh."""
    variables = (name for name in environment if name.startswith(("OMPI_MCA_", "PRTE_MCA_", "HYDRA_LAUNCHER")))
    return any(word.endswith(("_agent", "launcher-exec", "launcher")) for word in (*words, *variables)) or any(
        name.endswith("_EXEC") for name in environment if name.startswith("HYDRA_LAUNCHER")
    )


def _is_set(environment: Mapping[str, str], name: str) -> bool:
    """True when the user has set the parameter, or its opposite, by a variable."""
    variables = {f"OMPI_MCA_{one}" for one in _with_opposite(name)} | {f"PRTE_MCA_{_PRTE.get(name, name)}"}
    return not variables.isdisjoint(environment)


def _with_opposite(name: str) -> set[str]:
    return {name, name.replace("_include", "_exclude"), name.replace("_exclude", "_include")}
