"""Rank 1 comes to init with one setting or version that the others do not have.  python differ.py FOLDER"""

import importlib.metadata
import os
import sys

import smddp_tf as hvd
from smddp_tf.lifecycle import versions
from tests.support.recorder import Recorder

SETTINGS = {
    "SMDDP_BUCKET_BYTES": "1MB",
    "SMDDP_CHUNK_BYTES": "8192",
    "SMDDP_DYNAMIC_PROCESS_SETS": "1",
    "SMDDP_HEARTBEAT_TIMEOUT": "7",
    "SMDDP_MONITOR": "/nowhere/else",
    "SMDDP_RAIL_ALGORITHM": "ring",
    "SMDDP_RAIL_BANDWIDTH_MBPS": "100",
    "SMDDP_RAIL_LATENCY_US": "3",
    "SMDDP_VERIFY": "1",
    "TF_USE_LEGACY_KERAS": "1",
}
VERSIONS = {"tensorflow": "1.99.1", "keras": "1.98.1"}

rank = int(next(os.environ[name] for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK") if name in os.environ))
odd = rank == 1
recorder = Recorder(sys.argv[1], rank)
found = importlib.metadata.version


def with_setting(name: str) -> None:
    if odd:
        os.environ[name] = SETTINGS[name]
    try:
        hvd.init()
    finally:
        os.environ.pop(name, None)


def with_version(package: str) -> None:
    if odd:
        importlib.metadata.version = lambda name: VERSIONS[package] if name == package else found(name)
    try:
        hvd.init()
    finally:
        importlib.metadata.version = found


def with_python() -> None:
    if odd:
        versions.sys = type("OtherPython", (), {"version_info": type("Info", (), {"major": 3, "minor": 99})})
    try:
        hvd.init()
    finally:
        versions.sys = sys


for setting in SETTINGS:
    recorder.call(setting, lambda setting=setting: with_setting(setting))
for package in VERSIONS:
    recorder.call(package, lambda package=package: with_version(package))
recorder.call("python", with_python)
recorder.call("the same", hvd.init)
