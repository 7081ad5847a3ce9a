"""Training on process groups: weights as with gloo and as in one process; and all ways to start. `make test-torch`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support import mpirun
from tests.torch_backend import jobs

pytest.importorskip("torch", reason="needs the environment of `make test-torch`")

from tests.torch_backend import programs

HERE = Path(__file__).parent


def weights(folder: Path, ranks: int) -> np.ndarray:
    found = [np.array(result) for result in jobs.results(folder, ranks) if result]
    assert found
    assert all(np.array_equal(found[0], other) for other in found)
    return found[0]


@pytest.mark.parametrize(
    "kind", ["ddp", "view", "unused", "hook", "no_sync", "power_sgd", "compiled", "fsdp1", "fsdp2", "hybrid"]
)
@pytest.mark.parametrize(("ranks", "nodes"), [(2, 1), (4, 2)], ids=["2", "2x2"])
def test_weights_are_those_of_gloo(kind: str, ranks: int, nodes: int, tmp_path: Path) -> None:
    if kind == "hybrid" and ranks == 2:
        pytest.skip("needs two replicas of two parts")
    found = {}
    for backend in ("smddp", "gloo"):
        folder = tmp_path / backend
        folder.mkdir()
        finished = jobs.by_mpirun(ranks, "train", folder, kind, backend, nodes=nodes)
        assert finished.returncode == 0, finished.output
        found[backend] = weights(folder, ranks)
    scale = np.abs(found["gloo"]).max()
    assert np.abs(found["smddp"] - found["gloo"]).max() <= (1e-3 if kind == "hook" else 1e-6) * scale
    if kind not in ("hook", "no_sync", "power_sgd"):
        assert np.abs(found["smddp"] - np.array(programs.one_process(ranks))).max() <= 2e-6 * scale


@pytest.mark.parametrize("how", ["env", "tcp", "file"])
def test_processes_that_the_program_starts(how: str, tmp_path: Path) -> None:
    """`torch.multiprocessing.spawn`, twice in each process; PyTorch's tutorials start so."""
    where = str(tmp_path / "store") if how == "file" else str(mpirun.free_port())
    finished = mpirun.launch([HERE / "spawning.py", how, where], None, 60)
    assert finished.returncode == 0, finished.output
    for rank in range(2):
        assert finished.output.count(f"{how} {rank} 7.0") == (1 if how == "file" else 2), finished.output


OWN = mpirun.NOTHING_LEFT_OUT  # Lightning uses what other tests hide


@pytest.mark.parametrize("launcher", ["lightning", "torchrun", "mpirun", "smddprun"])
def test_lightning(launcher: str, tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    program = str(HERE / "with_lightning.py")
    before = {
        "lightning": [],
        "torchrun": [*jobs.TORCHRUN, "2", "--master-port", str(mpirun.free_port())],
        "smddprun": ["-m", "smddp_tf.run", "-np", "2", "--no-mpi", sys.executable],
        "mpirun": [],
    }[launcher]
    found = []
    for backend in ("smddp", "gloo"):
        folder = tmp_path / backend
        folder.mkdir()
        words = [*before, program, backend, folder]
        finished = mpirun.launch(words, 2 if launcher == "mpirun" else None, 60, OWN)
        assert finished.returncode == 0, finished.output
        found.append(jobs.results(folder, 2))
    assert found[0] == found[1]
    assert found[0][0] == found[0][1]
    assert found[0][0][0] == 2


def test_accelerate() -> None:
    pytest.importorskip("accelerate")
    finished = mpirun.launch([str(HERE / "with_accelerate.py")], 2, 60, OWN)
    assert finished.returncode == 0, finished.output
    assert finished.output.count("2 processes, smddp, DistributedDataParallel, [0, 1]") == 2, finished.output


def test_scripts_of_smddp_run_as_they_are() -> None:
    finished = mpirun.launch(["-m", "smddp_tf.aliases", "smdistributed", str(HERE / "of_smddp.py")], 2, 60)
    assert finished.returncode == 0, finished.output
    assert finished.output.count("smddp 3.0") == 2, finished.output


def test_pytorch_and_tensorflow_in_one_process() -> None:
    """They share the session; the second one's ranks must be the first one's."""
    finished = mpirun.launch([str(HERE / "beside_hvd.py")], 2, 90)
    assert finished.returncode == 0, finished.output
    assert finished.output.count("3.0 30.0 300.0") == 2, finished.output
    assert finished.output.count("has started as rank") == 2, finished.output


ALONE = "dist.init_process_group('smddp', rank=0, world_size=1, store=dist.HashStore()); "


@pytest.mark.parametrize(
    ("imports", "then", "printed"),
    [
        (
            "import torch, torch.distributed as dist, smddp_tf.torch",
            "t = torch.arange(3.0); dist.all_reduce(t); print(t.tolist(), dist.new_group([0]).size())",
            "[0.0, 1.0, 2.0] 1",
        ),
        # By the entry point of an installed smddp_tf, without an import of it, and without its native code.
        (
            "import sys, torch.distributed as dist; assert 'smddp_tf._core' not in sys.modules",
            "print(dist.get_backend())",
            "smddp",
        ),
    ],
    ids=["imported", "loaded by PyTorch"],
)
def test_one_process(imports: str, then: str, printed: str) -> None:
    finished = mpirun.launch(["-c", f"{imports}\n{ALONE}{then}"], None, 30)
    assert finished.output == f"{printed}\n"
