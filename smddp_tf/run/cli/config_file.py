"""horovodrun's --config-file: YAML with sections, such as `autotune: {enabled: true}`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from smddp_tf.exceptions import LaunchError
from smddp_tf.run.cli.options import KNOBS

_TOP = {
    "binding_args", "disable_cache", "hostfile", "hosts", "mpi_args", "network_interfaces", "num_proc",
    "output_filename", "prefix_timestamp", "ssh_identity_file", "ssh_port", "start_timeout", "fabric", "tcp", "verbose",
}  # fmt: skip
_TOP_ALIASES = {"np": "num_proc", "network_interface": "network_interfaces", "host_file": "hostfile"}
# Keys without a knob, by section.
_OTHERS = {
    "logging": {"hide_timestamp": "log_with_timestamp"},
    "elastic": {
        "min_np": "min_np", "min_num_proc": "min_np", "max_np": "max_np", "max_num_proc": "max_np",
        "slots_per_host": "slots_per_host", "elastic_timeout": "elastic_timeout", "reset_limit": "reset_limit",
        "host_discovery_script": "host_discovery_script",
    },
}  # fmt: skip


def read_config(path: str) -> dict[str, Any]:
    """The options of a file, by the names of the command line's options (`num_proc`). Those given there win.

    Raises:
        LaunchError: the file cannot be read, is not such YAML, or has an unknown key.
    """
    import yaml

    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise LaunchError(f"The config file {path} cannot be read: {error.strerror}.") from None
    except yaml.YAMLError as error:
        raise LaunchError(f"The config file {path} is not YAML: {error}") from None
    if not isinstance(content or {}, dict):
        raise LaunchError(f"The config file {path} must hold keys and values. Received: {type(content).__name__}.")
    return _flattened(content or {}, path)


def _flattened(content: dict[str, Any], path: str) -> dict[str, Any]:
    sections = _OTHERS.keys() | {knob.section for knob in KNOBS}
    options: dict[str, Any] = {}
    for name, value in content.items():
        if name in sections:
            if not isinstance(value or {}, dict):
                raise LaunchError(f"`{name}` in {path} must be a section with keys. Received: {value!r}.")
            for key, of_key in (value or {}).items():
                options[_option_of(name, key, path)] = not of_key if key == "hide_timestamp" else of_key
        elif name == "controller":
            if str(value).lower() not in ("mpi", "auto"):
                options[f"use_{str(value).lower()}"] = True
        elif _TOP_ALIASES.get(name, name) in _TOP:
            options[_TOP_ALIASES.get(name, name)] = value
        else:
            raise LaunchError(
                f"{path} has a key `{name}` that smddprun does not know. Known: the sections "
                f"{', '.join(sorted(sections))}; the keys controller, {', '.join(sorted(_TOP))}."
            )
    return options


def _option_of(section: str, key: str, path: str) -> str:
    options = {knob.key: knob.name for knob in KNOBS if knob.section == section} | _OTHERS.get(section, {})
    if key not in options:
        raise LaunchError(
            f"{path} has a key `{key}` under `{section}` that smddprun does not know. Known there: "
            f"{', '.join(sorted(options))}."
        )
    return options[key]
