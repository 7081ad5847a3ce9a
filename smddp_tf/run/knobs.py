"""horovodrun's flags that become environment variables of the ranks: one table for options, variables and YAML keys."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from smddp_tf.run.errors import LaunchError


def _as_switch(value: Any) -> str:
    return "1" if value else "0"


def _as_text(value: Any) -> str:
    return str(value)


@dataclass(frozen=True)
class Knob:
    """A flag.

    Attributes:
        option: without the dashes; a switch also exists as --no-OPTION.
        kind: bool, int, float or str.
        variable: Horovod's environment variable, which scripts may read as well.
        section, key: where horovodrun's YAML file has it.
        help: for --help.
        ours: the variable of the engine that wins over Horovod's, so it is set too.
        as_text: the variable's value; as_ours: that of `ours`, where it differs.
        ignored: why the flag is accepted and has no effect, which leads to a note; "": it has one.
    """

    option: str
    kind: type
    variable: str
    section: str
    key: str
    help: str
    ours: str = ""
    as_text: Callable[[Any], str] = _as_text
    as_ours: Callable[[Any], str] | None = None
    ignored: str = ""

    def __post_init__(self) -> None:
        if self.ignored:
            object.__setattr__(self, "help", f"Ignored: {self.ignored}")

    @property
    def name(self) -> str:
        return self.option.replace("-", "_")


def _megabytes(value: float) -> str:
    if value < 0:
        raise LaunchError(f"--fusion-threshold-mb must be 0 or more. Received: {value:g}.")
    return str(int(value * 1024 * 1024))


def _our_level(value: str) -> str:
    return "error" if value.lower() == "fatal" else value.lower()


def _full_path(value: str) -> str:
    return value if value == "DYNAMIC" else os.path.abspath(value)


KNOBS = (
    Knob("fusion-threshold-mb", float, "HOROVOD_FUSION_THRESHOLD", "params", "fusion_threshold_mb",
         "Close a fusion bucket at this size, in MiB; 0 gives every tensor its own.", "SMDDP_BUCKET_BYTES", _megabytes),
    Knob("cycle-time-ms", float, "HOROVOD_CYCLE_TIME", "params", "cycle_time_ms",
         "", ignored="the engine has no cycle, a bucket starts when it is full."),
    Knob("cache-capacity", int, "HOROVOD_CACHE_CAPACITY", "params", "cache_capacity",
         "", ignored="a plan needs no cache of responses."),
    Knob("hierarchical-allreduce", bool, "HOROVOD_HIERARCHICAL_ALLREDUCE", "params", "hierarchical_allreduce",
         "", as_text=_as_switch, ignored="reductions are always hierarchical."),
    Knob("hierarchical-allgather", bool, "HOROVOD_HIERARCHICAL_ALLGATHER", "params", "hierarchical_allgather",
         "", as_text=_as_switch, ignored="the engine chooses."),
    Knob("torus-allreduce", bool, "HOROVOD_TORUS_ALLREDUCE", "params", "torus_allreduce",
         "", as_text=_as_switch, ignored="SMDDP_RAIL_ALGORITHM chooses between nodes."),
    Knob("autotune", bool, "HOROVOD_AUTOTUNE", "autotune", "enabled",
         "", "SMDDP_AUTOTUNE", _as_switch, ignored="set SMDDP_BUCKET_BYTES; nothing is tuned while a job runs."),
    Knob("autotune-log-file", str, "HOROVOD_AUTOTUNE_LOG", "autotune", "log_file",
         "", ignored="nothing is tuned."),
    Knob("autotune-warmup-samples", int, "HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "autotune", "warmup_samples",
         "", ignored="nothing is tuned."),
    Knob("autotune-steps-per-sample", int, "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "autotune", "steps_per_sample",
         "", ignored="nothing is tuned."),
    Knob("autotune-bayes-opt-max-samples", int, "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "autotune",
         "bayes_opt_max_samples", "", ignored="nothing is tuned."),
    Knob("autotune-gaussian-process-noise", float, "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "autotune",
         "gaussian_process_noise", "", ignored="nothing is tuned."),
    Knob("timeline-filename", str, "HOROVOD_TIMELINE", "timeline", "filename",
         "Write a trace of all ranks to this file (or DYNAMIC).", "SMDDP_TIMELINE", _full_path),
    Knob("timeline-mark-cycles", bool, "HOROVOD_TIMELINE_MARK_CYCLES", "timeline", "mark_cycles",
         "Mark the engine's turns in the trace.", "SMDDP_TIMELINE_MARK_CYCLES", _as_switch),
    Knob("stall-check-warning-time-seconds", int, "HOROVOD_STALL_CHECK_TIME_SECONDS", "stall_check",
         "warning_time_seconds", "Warn when a rank has been missing so long.", "SMDDP_STALL_WARN_SECONDS"),
    Knob("stall-check-shutdown-time-seconds", int, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "stall_check",
         "shutdown_time_seconds", "Raise an error on all ranks when one has been missing so long; 0: never.",
         "SMDDP_STALL_ERROR_SECONDS"),
    Knob("mpi-threads-disable", bool, "HOROVOD_MPI_THREADS_DISABLE", "library_options", "mpi_threads_disable",
         "", as_text=_as_switch, ignored="MPI is always used with threads."),
    Knob("num-nccl-streams", int, "HOROVOD_NUM_NCCL_STREAMS", "library_options", "num_nccl_streams",
         "", ignored="NCCL's work has one stream of its own."),
    Knob("thread-affinity", int, "HOROVOD_THREAD_AFFINITY", "library_options", "thread_affinity",
         "", ignored="the engine's thread is not bound."),
    Knob("gloo-timeout-seconds", int, "HOROVOD_GLOO_TIMEOUT_SECONDS", "library_options", "gloo_timeout_seconds",
         "", ignored="there is no Gloo."),
    Knob("log-level", str, "HOROVOD_LOG_LEVEL", "logging", "level",
         "Least severe message of the engine: trace, debug, info, warning, error or fatal.", "SMDDP_LOG_LEVEL",
         str.lower, _our_level),
)  # fmt: skip


def variables_of_knobs(values: Mapping[str, Any]) -> dict[str, str]:
    """The ranks' variables for flags by name (`fusion_threshold_mb`); those that are None are left alone.

    Raises:
        LaunchError: a value is invalid.
    """
    variables = {}
    for knob in KNOBS:
        value = values.get(knob.name)
        if value is not None:
            variables[knob.variable] = knob.as_text(value)
            if knob.ours:
                variables[knob.ours] = (knob.as_ours or knob.as_text)(value)
    if values.get("stall_check") is not None:
        variables["HOROVOD_STALL_CHECK_DISABLE"] = _as_switch(not values["stall_check"])
    if values.get("log_with_timestamp") is not None:
        variables["HOROVOD_LOG_HIDE_TIME"] = _as_switch(not values["log_with_timestamp"])
        variables["SMDDP_LOG_TIMESTAMP"] = _as_switch(values["log_with_timestamp"])
    return variables


def notes_for(values: Mapping[str, Any]) -> list[str]:
    """A sentence for each given flag that has no effect."""
    given = [knob for knob in KNOBS if knob.ignored and values.get(knob.name)]
    return [f"--{knob.option} is ignored: {knob.ignored}" for knob in given]
