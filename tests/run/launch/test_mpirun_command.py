"""The mpirun line for each MPI, as --dry-run prints it."""

from __future__ import annotations

import pytest

from smddp_tf.exceptions import LaunchError
from smddp_tf.run.hosts.network import choose
from smddp_tf.run.launch.fabric import check_fabric
from smddp_tf.run.launch.mpi import MPICH, OPEN_MPI, Mpi
from tests.run.run_dry import ETH0, HYDRA, LO, OPEN_MPI_4, OPEN_MPI_5, DryRun, error_of, values_of


@pytest.fixture
def dry_run(monkeypatch, capsys) -> DryRun:
    return DryRun(monkeypatch, capsys)


@pytest.mark.parametrize(
    ("mpi", "expected"),
    [
        (OPEN_MPI_5, "/opt/bin/mpirun -np 2 -H localhost:2 --bind-to none --map-by slot --mca pml ob1 "
                     "--mca btl ^openib,ofi --mca btl_tcp_if_include lo -x PYTHONUNBUFFERED train --lr 1"),
        (OPEN_MPI_4, "/opt/bin/mpirun -np 2 -H localhost:2 --bind-to none --map-by slot --mca pml ob1 "
                     "--mca btl ^openib,ofi --mca btl_tcp_if_include lo -x PYTHONUNBUFFERED train --lr 1"),
        (HYDRA, "/opt/bin/mpiexec.hydra -n 2 -hosts localhost -ppn 2 -bind-to none train --lr 1"),
    ],
    ids=["Open MPI 5", "Open MPI 4", "MPICH"],
)  # fmt: skip
def test_one_host(dry_run: DryRun, mpi, expected: str) -> None:
    dry_run.mpi = mpi
    assert dry_run("-np", "2", "train", "--lr", "1") == ["PYTHONUNBUFFERED=1", *expected.split()]


@pytest.mark.parametrize(
    ("mpi", "expected"),
    [
        (OPEN_MPI_5, "/opt/bin/mpirun -np 4 -H h1:2,h2:2 --bind-to none --map-by slot --mca pml ob1 --mca btl "
                     "^openib,ofi --mca btl_tcp_if_include 10.0.0.0/24 --prtemca prte_if_include 10.0.0.0/24 --prtemca "
                     "plm_ssh_args -p!22!-i!/key --prtemca oob_tcp_keepalive_time 10 --prtemca "
                     "oob_tcp_keepalive_intvl 5 --prtemca oob_tcp_keepalive_probes 4 -x PYTHONUNBUFFERED -x "
                     "DATA -x PATH train"),
        (OPEN_MPI_4, "/opt/bin/mpirun -np 4 -H h1:2,h2:2 --bind-to none --map-by slot --mca pml ob1 --mca btl "
                     "^openib,ofi --mca btl_tcp_if_include 10.0.0.0/24 --mca oob_tcp_if_include 10.0.0.0/24 --mca "
                     "plm_rsh_args -p!22!-i!/key --mca oob_tcp_keepalive_time 10 --mca oob_tcp_keepalive_intvl 5 --mca "
                     "oob_tcp_keepalive_probes 4 -x PYTHONUNBUFFERED -x DATA -x PATH train"),
        (HYDRA, "HYDRA_LAUNCHER_EXTRA_ARGS=-p!22!-i!/key /opt/bin/mpiexec.hydra -n 4 -hosts h1,h2 "
                "-ppn 2 -bind-to none -iface eth0 train"),
    ],
    ids=["Open MPI 5", "Open MPI 4", "MPICH"],
)  # fmt: skip
def test_two_hosts(dry_run: DryRun, mpi, expected: str) -> None:
    dry_run.mpi = mpi
    env = {"PATH": "/bin", "DATA": "d", "HOSTNAME": "h1", "SLURM_X": "", "BASH_FUNC_a%%": "() { :; }"}
    words = dry_run("-H", "h1:2,h2:2", "-p", "22", "-i", "/key", "train", env=env)
    assert words == ["PYTHONUNBUFFERED=1", *(word.replace("!", " ") for word in expected.split())]


@pytest.mark.parametrize("mpi", [OPEN_MPI_5, OPEN_MPI_4, HYDRA], ids=["Open MPI 5", "Open MPI 4", "MPICH"])
@pytest.mark.parametrize("hosts", ["h1:2", "h1:1,h2:1"])
def test_values_of_variables_are_on_no_command_line(mpi, hosts: str) -> None:
    from smddp_tf.run.hosts.hosts import parse_hosts
    from smddp_tf.run.launch import mpirun_command, settings

    job = settings.Settings(2, tuple(parse_hosts(hosts)), {"TOKEN": "s3cret", "KEPT": "own", "A": "new"})
    environment = {"PATH": "/bin", "OTHER": "hidden", "KEPT": "own", "A": "old"}
    made = mpirun_command.build_command(job, mpi, choose([LO, ETH0], ["10.0.0.2"]), environment, 8, False)
    assert not [word for word in made.words if any(value in word for value in ("s3cret", "hidden", "own", "new"))]
    assert {"TOKEN": "s3cret", "A": "new"}.items() <= made.environment.items()
    assert "KEPT" not in made.environment  # it is there already, and nobody need see it with --dry-run
    if mpi is not HYDRA:
        assert {"TOKEN", "KEPT", "A"} <= set(values_of(list(made.words), "-x"))


LOADING = {"LD_LIBRARY_PATH": "/new", "LD_PRELOAD": "/lib.so", "PATH": "/bin", "TMPDIR": "/t"}


@pytest.mark.parametrize("mpi", [OPEN_MPI_5, OPEN_MPI_4, HYDRA], ids=["Open MPI 5", "Open MPI 4", "MPICH"])
@pytest.mark.parametrize("hosts", ["h1:2", "h1:1,h2:1"])
def test_what_would_change_mpirun_itself_reaches_the_ranks_only(dry_run: DryRun, mpi, hosts: str) -> None:
    """Where the value is what mpirun has anyway, the name is enough."""
    dry_run.mpi = mpi
    given = [word for name, value in LOADING.items() for word in ("-x", f"{name}={value}")]
    words = dry_run("-H", hosts, *given, "-x", "OWN_PATH=/own", "t", env={"PATH": "/bin", "LD_LIBRARY_PATH": "/old"})
    before = words[: words.index(mpi.mpirun)]
    assert [word for word in before if word.startswith(("LD_", "PATH", "TMPDIR"))] == []
    assert "OWN_PATH=/own" in before
    new = {name: value for name, value in LOADING.items() if name != "PATH"}
    if mpi is HYDRA:
        assert values_of(words, "-genv", 2) == [f"{name} {value}" for name, value in new.items()]
    else:
        expected = ["LD_LIBRARY_PATH=/new", "LD_PRELOAD=/lib.so", "OWN_PATH", "PATH", "PYTHONUNBUFFERED", "TMPDIR=/t"]
        assert values_of(words, "-x") == expected


def test_daemons_outwait_the_heartbeat(dry_run: DryRun) -> None:
    def given(env: dict[str, str]) -> list[str]:
        return values_of(dry_run("-H", "h1:1,h2:1", "t", env={"PATH": "/bin", **env}), "--prtemca", 2)

    assert "oob_tcp_keepalive_intvl 40" in given({"SMDDP_HEARTBEAT_TIMEOUT": "120"})
    for unusable in ("0", "soon"):
        assert not any("keepalive" in pair for pair in given({"SMDDP_HEARTBEAT_TIMEOUT": unusable}))


def test_what_nccl_and_cuda_read_reaches_ranks_on_other_hosts(dry_run: DryRun) -> None:
    env = {"PATH": "/bin", "NCCL_DEBUG": "VERSION", "NCCL_SOCKET_IFNAME": "eth0", "CUDA_VISIBLE_DEVICES": "0,1"}
    forwarded = values_of(dry_run("-H", "h1:1,h2:1", "t", env=env), "-x")
    assert {"NCCL_DEBUG", "NCCL_SOCKET_IFNAME", "CUDA_VISIBLE_DEVICES"} <= set(forwarded)


def test_uneven_hosts(dry_run: DryRun) -> None:
    assert values_of(dry_run("-np", "3", "-H", "h1:2,h2:4,far:1", "t"), "-H") == ["h1:2,h2:4"]
    dry_run.mpi = HYDRA
    assert values_of(dry_run("-np", "3", "-H", "h1:2,h2:1", "t"), "-hosts") == ["h1:2,h2:1"]


def test_more_ranks_than_cores_yield(dry_run: DryRun) -> None:
    crowded, roomy = dry_run("-np", "3", "t", cores=2), dry_run("-np", "3", "t", cores=3)
    assert "--oversubscribe" in crowded
    assert "mpi_yield_when_idle 1" in values_of(crowded, "--mca", 2)
    assert "--oversubscribe" not in roomy
    assert "mpi_yield_when_idle 1" not in values_of(roomy, "--mca", 2)


def test_root_is_allowed_only_as_root(dry_run: DryRun, monkeypatch) -> None:
    assert "--allow-run-as-root" not in dry_run("-np", "2", "t")
    from smddp_tf.run.launch import mpirun_command, settings

    job = settings.Settings(2, (line_host(2),))
    assert "--allow-run-as-root" in mpirun_command.build_command(job, OPEN_MPI_5, choose([LO], None), {}, 8, True).words
    assert "--allow-run-as-root" not in mpirun_command.build_command(job, HYDRA, choose([LO], None), {}, 8, True).words


def line_host(slots: int):
    from smddp_tf.run.hosts.hosts import Host

    return Host("localhost", slots)


def test_what_the_user_sets_replaces_our_default(dry_run: DryRun) -> None:
    words = dry_run(
        "-np", "2", "--mpi-args", "--bind-to core --map-by numa --mca pml ucx --mca btl_tcp_if_exclude a", "t"
    )
    assert values_of(words, "--bind-to") == ["core"]
    assert values_of(words, "--map-by") == ["numa"]
    assert values_of(words, "--mca", 2) == ["btl ^openib,ofi", "pml ucx", "btl_tcp_if_exclude a"]
    words = dry_run(
        "-np", "2", "t", env={"OMPI_MCA_pml": "cm", "OMPI_MCA_btl": "^a", "OMPI_MCA_btl_tcp_if_exclude": "b"}
    )
    assert values_of(words, "--mca", 2) == []
    words = dry_run("-np", "2", "--binding-args", "-bind-to socket", "t")
    assert ("--bind-to" in words, "--map-by" in words, values_of(words, "-bind-to")) == (False, False, ["socket"])
    assert "btl self,sm,tcp" in values_of(dry_run("-np", "2", "--tcp", "t"), "--mca", 2)


@pytest.mark.parametrize(
    ("words", "variables", "expected"),
    [
        (["--fabric", "auto"], {}, ["pml ob1", "btl ^openib,ofi"]),
        (["--fabric", "tcp"], {}, ["pml ob1", "btl self,sm,tcp"]),
        (["--fabric", "ofi"], {}, ["pml cm", "mtl ofi"]),
        (["--fabric", "ofi"], {"FI_PROVIDER": "efa"}, ["pml cm", "mtl ofi", "opal_common_ofi_provider_include efa"]),
        (
            ["--fabric", "ofi", "-x", "FI_PROVIDER=a;b"],
            {},
            ["pml cm", "mtl ofi", "opal_common_ofi_provider_include a;b"],
        ),
        (["--fabric", "ucx"], {}, ["pml ucx", "pml_ucx_tls any", "pml_ucx_devices any"]),
        (["--fabric", "ucx", "--mpi-args", "--mca pml ob1"], {}, ["pml_ucx_tls any", "pml_ucx_devices any", "pml ob1"]),
    ],
)
def test_fabrics(dry_run: DryRun, words, variables, expected) -> None:
    given = values_of(dry_run("-np", "2", *words, "t", env=variables), "--mca", 2)
    assert [each for each in given if not each.startswith("btl_tcp")] == expected


def test_a_fabric_of_mpich(dry_run: DryRun) -> None:
    dry_run.mpi = HYDRA
    for fabric in ("ofi", "ucx"):
        assert f"MPIR_CVAR_CH4_NETMOD={fabric}" in dry_run("-np", "2", "--fabric", fabric, "t")
    assert not [word for word in dry_run("-np", "2", "--fabric", "tcp", "t") if "NETMOD" in word]


def test_a_fabric_that_contradicts(capsys: pytest.CaptureFixture[str]) -> None:
    said = error_of(capsys, "--dry-run", "-np", "2", "--fabric", "ofi", "--tcp", "t")
    assert "--tcp is --fabric tcp. Received besides: --fabric ofi" in said


@pytest.mark.parametrize(
    ("kind", "program", "said", "has", "lacks", "needed"),
    [
        (OPEN_MPI, "ompi_info", "mca:pml:ob1:version\nmca:mtl:ofi:version", ["ofi"], ["ucx"], "component pml ucx"),
        (OPEN_MPI, "ompi_info", "", ["ofi", "ucx"], [], ""),
        (MPICH, "mpichversion", "MPICH Device:\tch4:ucx\nMPICH CC: ofi", ["ucx"], ["ofi"], "network module ofi"),
        (MPICH, "mpichversion", "MPICH Device: ch3:nemesis", [], ["ofi", "ucx"], "network module"),
        (MPICH, "mpichversion", "MPICH Device:       ch4:ucx ofi", ["ofi", "ucx"], [], ""),
        (MPICH, "none", "MPICH Device: ch4:ucx", ["ofi", "ucx"], [], ""),
    ],
)
def test_an_mpi_without_the_fabric(tmp_path, kind, program, said, has, lacks, needed) -> None:
    (tmp_path / program).write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\n", encoding="utf-8")
    (tmp_path / program).chmod(0o755)
    mpi = Mpi(str(tmp_path / "mpirun"), kind, 5)
    for fabric in ("auto", "tcp", *has):
        check_fabric(fabric, mpi)
    for fabric in lacks:
        with pytest.raises(LaunchError, match=rf"{needed}.*, which .*mpirun was built without"):
            check_fabric(fabric, mpi)


def test_a_script_needs_no_python(dry_run: DryRun) -> None:
    import sys

    assert dry_run("-np", "2", "train.py", "-v")[-3:] == [sys.executable, "train.py", "-v"]
    assert dry_run("-np", "2", "-m", "pkg.train", "-v")[-4:] == [sys.executable, "-m", "pkg.train", "-v"]
    assert dry_run("train.py") == [sys.executable, "train.py"]  # nothing says how many: here
