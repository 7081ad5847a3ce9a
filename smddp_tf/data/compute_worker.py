"""The compute job of `smddp_tf.data.compute_service`: `mpirun -np N python -m smddp_tf.data.compute_worker CONFIG`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Rank 0 starts the compute service and writes the configuration; then every rank is a worker until `shutdown`."""
    options = _parsed(arguments)
    import smddp_tf
    from smddp_tf.data.compute_service import TfDataServiceConfig, compute_worker_fn
    from smddp_tf.data.service_registry import ComputeService

    smddp_tf.init()
    if smddp_tf.size() % options.dispatchers:
        sys.exit(
            f"The number of workers must be a multiple of --dispatchers. Received: {smddp_tf.size()} processes and "
            f"--dispatchers {options.dispatchers}."
        )
    config = None
    if smddp_tf.rank() == 0:
        service = ComputeService()
        config = TfDataServiceConfig(
            options.dispatchers,
            smddp_tf.size() // options.dispatchers,
            options.dispatcher_side,
            service.address,
            service.key,
            options.timeout,
        )
        config.write(options.configfile)
    compute_worker_fn(smddp_tf.broadcast_object(config, 0))


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
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
    main()
