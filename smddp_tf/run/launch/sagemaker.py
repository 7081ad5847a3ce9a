"""Jobs in SageMaker's training containers: reads the container's settings, and makes the variables that ranks need.

SageMaker's training toolkit starts the jobs of several hosts: its mpirun line ends in `smddprun python -m mpi4py
train.py`. In a container of one host without the toolkit `smddprun` as the entry point starts the job. The names and
the order of the flags are the toolkit's.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smddp_tf.exceptions import LaunchError
from smddp_tf.lifecycle.rank_variables import RENDEZVOUS
from smddp_tf.run.launch.fabric import FABRICS, open_mpi_parameters

CONFIG = Path("/opt/ml/input/config")
FAILURE = Path("/opt/ml/output/failure")
FABRIC = "SMDDP_FABRIC"
RENDEZVOUS_PORT = "29500"  # the default port of programs that use MASTER_ADDR without MASTER_PORT
_RESOURCES = "resourceconfig.json"
_OWN = "sagemaker_"
_OPTIONS = "sagemaker_distributed_dataparallel_custom_mpi_options"
_MPI_OPTIONS = "sagemaker_mpi_custom_mpi_options"  # of distribution={"mpi": ...}
_PER_HOST = "sagemaker_mpi_num_of_processes_per_host"


@dataclass(frozen=True)
class Training:
    """A training job, as one of its hosts sees it.

    Attributes:
        hosts: the hosts of the job, sorted; the first is the leader.
        per_host: number of ranks of each host.
        custom_mpi_options: the user's options for mpirun.
        program: the entry point, "" when none is named.
        arguments: the hyperparameters as flags.
    """

    hosts: tuple[str, ...]
    per_host: int
    custom_mpi_options: str = ""
    program: str = ""
    arguments: tuple[str, ...] = ()

    @property
    def custom_words(self) -> list[str]:
        """The custom MPI options, split as a shell does.

        Raises:
            LaunchError: a quotation mark is missing.
        """
        try:
            return shlex.split(self.custom_mpi_options)
        except ValueError as error:
            raise LaunchError(f"custom_mpi_options: {error}. Received: {self.custom_mpi_options!r}.") from None

    def command(self, words: Sequence[str]) -> list[str]:
        """Returns the command of the ranks. One without arguments gets the hyperparameters.

        Args:
            words: the command that the user has named; empty for the entry point.

        Raises:
            LaunchError: there is nothing to run, or there are several hosts, whose jobs the toolkit starts.
        """
        if len(self.hosts) > 1:
            raise LaunchError(
                f"This container belongs to a SageMaker job of {len(self.hosts)} hosts, which its training toolkit "
                "starts, not smddprun. Install sagemaker-training and sagemaker-tensorflow-training in the image, as "
                "docker/Dockerfile.sagemaker does, and leave out ENTRYPOINT."
            )
        command = list(words) or ([self.program] if self.program else [])
        if not command:
            raise LaunchError(
                "There is nothing to run. Give a command, or set SM_USER_ENTRY_POINT or SAGEMAKER_PROGRAM."
            )
        is_bare = len(command) == (2 if Path(command[0]).name.startswith("python") else 1)
        return [*command, *(self.arguments if is_bare else ())]


def tell_failure(text: str) -> None:
    """Writes the text that SageMaker shows as the job's FailureReason, of which the first 1,024 bytes count."""
    with contextlib.suppress(OSError):  # there is no such folder outside of a container
        FAILURE.write_text(f"{text}\n", encoding="utf-8")


def _exported(words: Sequence[str]) -> dict[str, str]:
    """Returns the variables that options of mpirun give a value: "-x NAME=VALUE"."""
    exports = [word.partition("=") for flag, word in zip(words, words[1:]) if flag == "-x"]
    return {name: value for name, equals, value in exports if equals}


def variables_of_ranks(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that a rank started by the toolkit's own mpirun line still needs.

    These are the rendezvous address, the user's "-x NAME=VALUE" where the line sets the same variable (of two, Open MPI
    5 uses the first, which is the toolkit's), and Open MPI's parameters for the network named by SMDDP_FABRIC: the line
    sets `pml` itself, and mpirun refuses a parameter that is given twice.

    Raises:
        LaunchError: a variable has an invalid value.
    """
    if not inside_training(environment):
        return {}
    training = read_training(environment)
    rendezvous = dict(zip(RENDEZVOUS, (training.hosts[0], RENDEZVOUS_PORT)))
    exported = _exported(training.custom_words)
    return {
        **{name: value for name, value in rendezvous.items() if name not in environment},
        **_parameters_of_fabric({**environment, **exported}),
        **exported,
    }


def _parameters_of_fabric(environment: Mapping[str, str]) -> dict[str, str]:
    fabric = environment.get(FABRIC) or "auto"
    if fabric not in FABRICS:
        raise LaunchError(f"{FABRIC} must be one of {', '.join(FABRICS)}. Received: {fabric!r}.")
    parameters = open_mpi_parameters(fabric, 4, environment) if fabric != "auto" else []
    return {f"OMPI_MCA_{name}": value for name, value in parameters}


def inside_training(environment: Mapping[str, str]) -> bool:
    """Returns whether this is a SageMaker training container, with or without the training toolkit, which sets SM_*."""
    return bool(environment.get("SM_HOSTS") and environment.get("SM_CURRENT_HOST")) or (CONFIG / _RESOURCES).exists()


def read_training(environment: Mapping[str, str], config: Path = CONFIG) -> Training:
    """Reads SM_* variables, and hyperparameters.json and resourceconfig.json in `config` where they are missing.

    Raises:
        LaunchError: a variable has an invalid value.
    """
    environment = {**_variables_of_files(config), **environment}
    hyperparameters = _json(environment, "SM_HPS", config / "hyperparameters.json")
    parameters = {name: value for name, value in hyperparameters.items() if name.startswith(_OWN)}
    parameters.update(_json(environment, "SM_FRAMEWORK_PARAMS"))
    parameters = {name: _decoded(value) for name, value in parameters.items()}
    hosts = _hosts(environment, parameters, config)
    current = environment["SM_CURRENT_HOST"]
    if current not in hosts:
        raise LaunchError(f"SM_CURRENT_HOST={current!r} is not one of the hosts that take part: {', '.join(hosts)}.")
    return Training(
        hosts=hosts,
        per_host=_per_host(environment, parameters),
        custom_mpi_options=str(parameters.get(_OPTIONS) or parameters.get(_MPI_OPTIONS) or ""),
        program=str(
            environment.get("SM_USER_ENTRY_POINT")
            or environment.get("SAGEMAKER_PROGRAM")
            or parameters.get("sagemaker_program")
            or ""
        ),
        arguments=_arguments(environment, hyperparameters),
    )


def flags_of(hyperparameters: Mapping[str, Any]) -> list[str]:
    """Returns hyperparameters as command-line flags, sorted by name, without SageMaker's own.

    `--key value`, `-k value` for one letter, `a=1,b=2` for a dict; an empty value leaves the flag alone (`--amp`).
    """
    flags = []
    for name in sorted(hyperparameters):
        if name.startswith(_OWN):
            continue
        value = _decoded(hyperparameters[name])
        if isinstance(value, Mapping):
            text = ",".join(f"{key}={item}" for key, item in sorted(value.items()))
        else:
            text = str(value)
        flags += [f"--{name}" if len(name) > 1 else f"-{name}", *([text] if text else [])]
    return flags


def _arguments(environment: Mapping[str, str], hyperparameters: Mapping[str, Any]) -> tuple[str, ...]:
    """The arguments that the toolkit has set, else those made of the hyperparameters."""
    if text := environment.get("SM_USER_ARGS"):
        arguments = _decoded(text)
        if not isinstance(arguments, list):
            raise LaunchError(f"SM_USER_ARGS must be a JSON list. Received: {text!r}.")
        return tuple(word for word in map(str, arguments) if word)
    return tuple(flags_of(hyperparameters))


def _variables_of_files(config: Path) -> dict[str, str]:
    """The variables that the training toolkit makes of resourceconfig.json, as far as they are needed here."""
    resources = _json({}, "", config / _RESOURCES)
    variables = {
        "SM_HOSTS": json.dumps(resources.get("hosts") or []),
        "SM_CURRENT_HOST": str(resources.get("current_host") or ""),
    }
    return variables if resources else {}


def _hosts(environment: Mapping[str, str], parameters: Mapping[str, Any], config: Path) -> tuple[str, ...]:
    hosts = _decoded(environment["SM_HOSTS"])
    if not isinstance(hosts, list) or not hosts:
        raise LaunchError(f"SM_HOSTS must be a JSON list of hosts. Received: {environment['SM_HOSTS']!r}.")
    groups = parameters.get("sagemaker_distribution_instance_groups")
    if groups:
        all_groups = _json(environment, "SM_RESOURCE_CONFIG", config / _RESOURCES).get("instance_groups") or []
        job_groups = [group for group in all_groups if group.get("instance_group_name") in groups]
        hosts = [host for group in job_groups for host in group.get("hosts", [])] or hosts
    return tuple(sorted(map(str, hosts)))


def _per_host(environment: Mapping[str, str], parameters: Mapping[str, Any]) -> int:
    candidates = (parameters.get(_PER_HOST), environment.get("SM_NUM_GPUS"), environment.get("SM_NUM_NEURONS"))
    numbers = [int(str(value)) for value in candidates if str(value).isdigit()]
    return next((number for number in numbers if number > 0), 1)


def _json(environment: Mapping[str, str], name: str, file: Path | None = None) -> dict[str, Any]:
    """The object in a variable, else in a file, else {}."""
    text, source = environment.get(name), name
    if not text and file is not None and file.exists():
        text, source = file.read_text(encoding="utf-8"), str(file)
    value = _decoded(text or "{}")
    if not isinstance(value, dict):
        raise LaunchError(f"{source} must hold a JSON object. Received: {text!r}.")
    return value


def _decoded(value: Any) -> Any:
    """Decodes a hyperparameter, which may be JSON in a string; a string that is not JSON is returned unchanged."""
    with contextlib.suppress(ValueError):
        return json.loads(value) if isinstance(value, str) else value
    return value
