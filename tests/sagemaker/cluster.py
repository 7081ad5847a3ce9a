"""Two containers of a SageMaker training job: nodes of the lab, each with an /opt/ml and keys for ssh."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lab import ROOT, Lab

TOOLKIT = ROOT / ".matrix" / "sagemaker" / "bin"
PATH = os.pathsep.join([str(TOOLKIT), str(Path(sys.executable).parent), os.defpath, "/usr/sbin"])
FOLDERS = ("code", "input/config", "input/data/train", "model", "checkpoints", "output/data")
# Processes of its own, whose first one reaps orphans and takes all others with it, and files of its own; a shell that
# ssh starts reads nothing of this machine's user. SageMaker ends all hosts when one has failed.
CONTAINER = ["timeout", "200", "unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "bash", "-ec"]
START = """
mkdir -p /opt/ml /root/.ssh /run/sshd
touch /root/.bashrc
mount --bind /dev/null /root/.bashrc
mount --bind {ml} /opt/ml
mount --bind {ssh} /root/.ssh
mount --bind {environment} /etc/environment
env {variables} {command} & job=$!
until [ -e {failed} ] || ! kill -0 $job 2>/dev/null; do sleep 0.5; done
kill $job 2>/dev/null || true
wait $job && code=0 || code=$?
[ $code = 0 ] || touch {failed}
exit $code
"""


@dataclass(frozen=True)
class Ended:
    """A job: what each host's `train` ended with and printed, and its /opt/ml."""

    codes: list[int]
    outputs: list[str]
    ml: list[Path]


class Cluster:
    """Runs training jobs on nodes of a lab, as SageMaker does: folders and files first, then `train` on every host."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self._lab, self._folder = lab, folder
        ssh = folder / "ssh"
        ssh.mkdir(mode=0o700)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", ssh / "id_ed25519"], check=True)
        shutil.copy(ssh / "id_ed25519.pub", ssh / "authorized_keys")
        (ssh / "config").write_text("Host *\n  StrictHostKeyChecking no\n  LogLevel ERROR\n")
        self._jobs = 0

    def train(
        self,
        hosts: int,
        source: Sequence[Path],
        hyperparameters: Mapping[str, Any],
        variables: Mapping[str, str] | None = None,
        command: Sequence[str] = ("train",),
    ) -> Ended:
        """One job.

        Args:
            hosts: how many take part.
            source: files of the source folder; the first is the entry point.
            hyperparameters: those of the request and of the SDK, not yet as JSON in strings.
            variables: of the container.
            command: the entry point of the container.
        """
        folder = self._folder / f"job-{self._jobs}"
        self._jobs += 1
        names = [f"node{host}" for host in range(hosts)]
        submitted = folder / "source"
        submitted.mkdir(parents=True)
        for file in source:
            shutil.copy(file, submitted)
        archive = shutil.make_archive(str(folder / "sourcedir"), "gztar", submitted)
        given = {**hyperparameters, "sagemaker_program": source[0].name, "sagemaker_submit_directory": archive}
        Path(f"/tmp/done.{names[0]}").unlink(missing_ok=True)  # the nodes share /tmp
        given_variables = {"PATH": PATH, **(variables or {})}
        starts = []
        for name in names:
            self._make_files(folder, name, names, given)
            start = START.format(
                ml=folder / name, ssh=self._folder / "ssh", environment=folder / f"environment-{name}",
                variables=shlex.join(f"{key}={value}" for key, value in given_variables.items()),
                command=shlex.join(command), failed=folder / "failed",
            )  # fmt: skip
            starts.append(start)
        with ThreadPoolExecutor(hosts) as pool:
            ends = list(pool.map(lambda host: self._lab.execute(host, *CONTAINER, starts[host]), range(hosts)))
        return Ended([code for code, _ in ends], [text for _, text in ends], [folder / name for name in names])

    def _make_files(self, folder: Path, name: str, names: Sequence[str], hyperparameters: Mapping[str, Any]) -> None:
        ml, environment = folder / name, folder / f"environment-{name}"
        for part in FOLDERS:
            (ml / part).mkdir(parents=True)
        environment.touch()
        x = np.random.default_rng(0).normal(size=(512, 4)).astype("float32")
        np.savez(ml / "input/data/train/data.npz", x=x, y=x.sum(axis=1, keepdims=True))
        group = {"instance_group_name": "homogeneousCluster", "instance_type": "ml.c5.xlarge", "hosts": [*names]}
        contents = {
            "hyperparameters": {key: json.dumps(value) for key, value in hyperparameters.items()},
            "inputdataconfig": {"train": {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated"}},
            "resourceconfig": {
                "current_host": name, "hosts": [*names], "network_interface_name": "eth0",
                "current_instance_type": "ml.c5.xlarge", "current_group_name": "homogeneousCluster",
                "instance_groups": [group],
            },
        }  # fmt: skip
        for file, content in contents.items():
            (ml / "input/config" / f"{file}.json").write_text(json.dumps(content))
