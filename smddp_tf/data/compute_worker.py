"""The compute job of `smddp_tf.data.compute_service`: `mpirun -np N python -m smddp_tf.data.compute_worker CONFIG`."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence

from smddp_tf import basics
from smddp_tf.collectives.objects import broadcast_object
from smddp_tf.data.compute_service import TfDataServiceConfig, compute_worker_fn
from smddp_tf.data.service_registry import ComputeService

__all__ = ["main"]


def main(dispatchers: int, dispatcher_side: str, configfile: str, timeout: int) -> None:
    """Rank 0 starts the compute service and writes the configuration; then every rank is a worker until `shutdown`.

    Args:
        dispatchers: number of dispatchers; the number of processes must be a multiple of it.
        dispatcher_side: "compute" or "training", the job in which dispatchers run.
        configfile: the file to write, where trainers can read it.
        timeout: seconds to wait for others.

    Raises:
        ValueError: An argument is not possible. Raised on every rank.
    """
    basics.init()
    if dispatchers < 1 or basics.size() % dispatchers:
        raise ValueError(
            "The number of processes must be a multiple of the number of dispatchers. "
            f"Received: {basics.size()} processes and dispatchers={dispatchers}."
        )
    of_each = basics.size() // dispatchers
    config = TfDataServiceConfig(dispatchers, of_each, dispatcher_side, ("", 0), b"", timeout)
    service = ComputeService(dispatchers, of_each) if basics.rank() == 0 else None
    try:
        if service is not None:
            config = dataclasses.replace(config, addresses=service.address, key=service.key)
            config.write(configfile)
        compute_worker_fn(broadcast_object(config, 0))
    finally:
        if service is not None:
            service.close()


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m smddp_tf.data.compute_worker", description=__doc__)
    parser.add_argument("configfile", metavar="CONFIG", help="file to write, where trainers can read it")
    parser.add_argument("--dispatchers", type=int, default=1, help="number of dispatchers (default: %(default)s)")
    parser.add_argument(
        "--dispatcher-side",
        choices=["compute", "training"],
        default="compute",
        help="the job in which dispatchers run (default: %(default)s)",
    )
    parser.add_argument("--timeout", type=int, default=60, help="seconds to wait for others (default: %(default)s)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    options = _parsed(sys.argv[1:])
    main(options.dispatchers, options.dispatcher_side, options.configfile, options.timeout)
