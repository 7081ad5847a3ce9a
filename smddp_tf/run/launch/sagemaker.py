"""What the ranks of a SageMaker job need beyond what SageMaker's training toolkit gives them.

The toolkit starts the job: it runs mpirun on the first host, whose line ends in `smddprun python -m mpi4py train.py`.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from smddp_tf.exceptions import LaunchError
from smddp_tf.lifecycle.rank_variables import RENDEZVOUS
from smddp_tf.run.launch.fabric import FABRICS, open_mpi_parameters

RESOURCES = Path("/opt/ml/input/config/resourceconfig.json")
FABRIC = "SMDDP_FABRIC"
RENDEZVOUS_PORT = "29500"  # the default port of programs that use MASTER_ADDR without MASTER_PORT
_OPTIONS = "sagemaker_distributed_dataparallel_custom_mpi_options"
_MPI_OPTIONS = "sagemaker_mpi_custom_mpi_options"  # of distribution={"mpi": ...}


def refuse_without_toolkit(environment: Mapping[str, str]) -> None:
    """Raises LaunchError in a training container, whose jobs the toolkit starts; `environment`: of no MPI rank."""
    if environment.get("SM_HOSTS") or RESOURCES.exists():
        raise LaunchError(
            "This container belongs to a SageMaker job, which its training toolkit starts, not smddprun. Install "
            "sagemaker-training and sagemaker-tensorflow-training in the image, as docker/Dockerfile.sagemaker does, "
            "and leave out ENTRYPOINT; or, on one host, say how many ranks: smddprun -np N ..."
        )


def variables_of_ranks(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that a rank started by the toolkit's own mpirun line still needs.

    These are the rendezvous address, the user's "-x NAME=VALUE" where the line sets the same variable (of two, Open MPI
    5 uses the first, which is the toolkit's), and Open MPI's parameters for the network named by SMDDP_FABRIC: the line
    sets `pml` itself, and mpirun refuses a parameter that is given twice.

    Raises:
        LaunchError: a variable has an invalid value.
    """
    if not environment.get("SM_HOSTS"):
        return {}
    parameters = _object(environment, "SM_FRAMEWORK_PARAMS")
    rendezvous = dict(zip(RENDEZVOUS, (_leader(environment, parameters), RENDEZVOUS_PORT)))
    exported = _exported(str(parameters.get(_OPTIONS) or parameters.get(_MPI_OPTIONS) or ""))
    return {
        **{name: value for name, value in rendezvous.items() if name not in environment},
        **_parameters_of_fabric({**environment, **exported}),
        **exported,
    }


def _exported(options: str) -> dict[str, str]:
    """Returns the variables that `custom_mpi_options` give a value: "-x NAME=VALUE"."""
    try:
        words = shlex.split(options)
    except ValueError as error:
        raise LaunchError(f"custom_mpi_options: {error}. Received: {options!r}.") from None
    exports = [word.partition("=") for flag, word in zip(words, words[1:]) if flag == "-x"]
    return {name: value for name, equals, value in exports if equals}


def _parameters_of_fabric(environment: Mapping[str, str]) -> dict[str, str]:
    fabric = environment.get(FABRIC) or "auto"
    if fabric not in FABRICS:
        raise LaunchError(f"{FABRIC} must be one of {', '.join(FABRICS)}. Received: {fabric!r}.")
    parameters = open_mpi_parameters(fabric, 4, environment) if fabric != "auto" else []
    return {f"OMPI_MCA_{name}": value for name, value in parameters}


def _leader(environment: Mapping[str, str], parameters: Mapping[str, Any]) -> str:
    """Returns the host of rank 0: the first one, by name, of those that take part."""
    hosts = _decoded(environment["SM_HOSTS"])
    if not isinstance(hosts, list) or not hosts:
        raise LaunchError(f"SM_HOSTS must be a JSON list of hosts. Received: {environment['SM_HOSTS']!r}.")
    groups = _decoded(parameters.get("sagemaker_distribution_instance_groups")) or ()
    all_groups = _object(environment, "SM_RESOURCE_CONFIG").get("instance_groups") or ()
    job_groups = [group["hosts"] for group in all_groups if group["instance_group_name"] in groups]
    return min(str(host) for group in job_groups or [hosts] for host in group)


def _object(environment: Mapping[str, str], name: str) -> dict[str, Any]:
    value = _decoded(environment.get(name) or "{}")
    if not isinstance(value, dict):
        raise LaunchError(f"{name} must hold a JSON object. Received: {environment[name]!r}.")
    return value


def _decoded(value: Any) -> Any:
    """Decodes JSON in a string; a string that is not JSON is returned unchanged."""
    with contextlib.suppress(ValueError):
        return json.loads(value) if isinstance(value, str) else value
    return value
