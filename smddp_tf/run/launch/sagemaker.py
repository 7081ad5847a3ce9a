"""What the ranks of a SageMaker job need beyond what SageMaker's training toolkit gives them.

The toolkit starts the job: it runs mpirun on the first host, whose line ends in `smddprun python -m mpi4py train.py`.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from smddp_tf.exceptions import LaunchError
from smddp_tf.lifecycle.rank_variables import MEETING
from smddp_tf.run.launch.fabric import FABRICS, open_mpi_parameters

RESOURCES = Path("/opt/ml/input/config/resourceconfig.json")
MEETING_PORT = "29500"  # for programs that meet at MASTER_ADDR and are given no port
FABRIC = "SMDDP_FABRIC"
_OPTIONS = "sagemaker_distributed_dataparallel_custom_mpi_options"
_MPI_OPTIONS = "sagemaker_mpi_custom_mpi_options"  # of distribution={"mpi": ...}


def refuse_without_toolkit(environment: Mapping[str, str]) -> None:
    """Raises LaunchError in a training container whose job nobody starts.

    Args:
        environment: of a process that is no MPI rank.
    """
    if environment.get("SM_HOSTS") or RESOURCES.exists():
        raise LaunchError(
            "This is a training container of SageMaker, and smddprun does not start the jobs of several hosts there: "
            "SageMaker's training toolkit does. Install sagemaker-training and sagemaker-tensorflow-training in the "
            "image, as docker/Dockerfile.sagemaker does, and leave out ENTRYPOINT. On one host: smddprun -np N ..."
        )


def variables_of_ranks(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that a rank started by the toolkit's mpirun line still needs.

    These are the rendezvous address, the user's `-x NAME=VALUE` where the line sets the same variable (of two, Open MPI
    5 uses the first, which is the toolkit's), and Open MPI's parameters for the network named by SMDDP_FABRIC: the
    line sets `pml` itself, and mpirun refuses a parameter that is given twice.

    Args:
        environment: of the rank.

    Returns:
        Nothing outside of SageMaker.

    Raises:
        LaunchError: a variable has an invalid value.
    """
    if not environment.get("SM_HOSTS"):
        return {}
    hosts = _parsed(environment, "SM_HOSTS", list)
    meeting = dict(zip(MEETING, (min(map(str, hosts)), MEETING_PORT)))
    given = _exported(_custom_words(environment))
    return {
        **{name: value for name, value in meeting.items() if name not in environment},
        **_parameters_of_fabric({**environment, **given}),
        **given,
    }


def _parameters_of_fabric(environment: Mapping[str, str]) -> dict[str, str]:
    fabric = environment.get(FABRIC) or "auto"
    if fabric not in FABRICS:
        raise LaunchError(f"{FABRIC} must be one of {', '.join(FABRICS)}. Received: {fabric!r}.")
    if fabric == "auto":
        return {}
    parameters = open_mpi_parameters(fabric, 4, environment)
    return {f"OMPI_MCA_{name}": value for name, value in parameters}


def _custom_words(environment: Mapping[str, str]) -> list[str]:
    """The user's `custom_mpi_options` as a shell cuts them."""
    parameters = _parsed(environment, "SM_FRAMEWORK_PARAMS", dict) if environment.get("SM_FRAMEWORK_PARAMS") else {}
    options = str(parameters.get(_OPTIONS) or parameters.get(_MPI_OPTIONS) or "")
    try:
        return shlex.split(options)
    except ValueError as error:
        raise LaunchError(f"custom_mpi_options: {error}. Received: {options!r}.") from None


def _exported(words: Sequence[str]) -> dict[str, str]:
    given = [word.partition("=") for flag, word in zip(words, words[1:]) if flag == "-x"]
    return {name: value for name, equals, value in given if equals}


def _parsed(environment: Mapping[str, str], name: str, kind: type) -> Any:
    try:
        value = json.loads(environment[name])
    except ValueError:
        value = None
    if not isinstance(value, kind) or (kind is list and not value):
        what = "a JSON list of hosts" if kind is list else "a JSON object"
        raise LaunchError(f"{name} must be {what}. Received: {environment[name]!r}.")
    return value
