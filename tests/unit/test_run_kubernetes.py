"""examples/kubernetes/mpijob.yaml has the fields that the MPI operator's MPIJob v2beta1 wants, and our flags exist."""

from __future__ import annotations

from pathlib import Path

import click
import yaml

from smddp_tf.run.cli import smddprun

JOB = yaml.safe_load((Path(__file__).resolve().parents[2] / "examples/kubernetes/mpijob.yaml").read_text("utf-8"))


def test_fields_of_an_mpijob() -> None:
    assert (JOB["apiVersion"], JOB["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
    assert JOB["metadata"]["name"]
    spec = JOB["spec"]
    known = {"slotsPerWorker", "runPolicy", "sshAuthMountPath", "mpiImplementation", "mpiReplicaSpecs"}
    assert set(spec) <= known
    assert isinstance(spec["slotsPerWorker"], int)
    assert spec["mpiImplementation"] in ("OpenMPI", "Intel", "MPICH")
    assert set(spec["mpiReplicaSpecs"]) == {"Launcher", "Worker"}
    assert spec["mpiReplicaSpecs"]["Launcher"]["replicas"] == 1
    for replica in spec["mpiReplicaSpecs"].values():
        pod = replica["template"]["spec"]
        mounted = {mount["name"] for container in pod["containers"] for mount in container.get("volumeMounts", [])}
        assert mounted == {volume["name"] for volume in pod.get("volumes", [])}
        for container in pod["containers"]:
            assert {"name", "image", "command", "resources"} <= set(container)


def test_the_launchers_command_is_a_line_of_smddprun() -> None:
    [container] = JOB["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"]
    assert container["command"] == ["smddprun"]
    context = click.Context(smddprun)
    smddprun.parse_args(context, list(container["args"]))
    assert context.params["hostfile"] == "/etc/mpi/hostfile"
    assert context.params["command"] == ("python", "/app/train.py")
