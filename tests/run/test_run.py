"""Jobs started by `smddprun` and by `smddp_tf.run.run`. Most ranks do without TensorFlow: they start in no time."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from smddp_tf.lifecycle.versions import shown
from smddp_tf.run import LaunchError, run
from smddp_tf.run.launch.mpi import MPICH, find_mpi
from tests.support.mpirun import ROOT, SCRIPTS, environment, find_mpirun, launch

pytestmark = pytest.mark.launches

RANKS = SCRIPTS / "ranks_without_tensorflow.py"
PATIENCE = 120.0


def smddprun(*arguments: str | Path, timeout: float = PATIENCE, **env: str):
    return launch(["-m", "smddp_tf.run", *arguments], ranks=None, timeout=timeout, env=env)


def test_ranks_find_each_other_and_their_lines_are_told_apart(tmp_path: Path) -> None:
    done = smddprun(
        "-np", "2", "--output-filename", tmp_path, "--fusion-threshold-mb", "2", "-x", "GIVEN=yes", RANKS, "sum"
    ).check()  # fmt: skip
    for rank in range(2):
        line = f"rank {rank} of 2: [3.0, 3.0, 3.0] {rank}"
        assert f"[{rank}]<stdout>: {line}\n" in done.output
        assert f"[{rank}]<stderr>: threshold 2097152 yes\n" in done.output
        assert (tmp_path / f"rank.{rank}" / "stdout").read_text() == line + "\n"
        assert "threshold" in (tmp_path / f"rank.{rank}" / "stderr").read_text()


def test_a_line_at_the_start_and_one_at_the_end() -> None:
    command = [sys.executable, "-m", "smddp_tf.run", "-np2", sys.executable, "-c", "print('of a rank')"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=True)
    begin, end = (line for line in done.stderr.splitlines() if line.startswith("smddprun: "))
    versions = shown()
    assert begin == (
        f"smddprun: 2 ranks on {socket.gethostname()}. In this Python: TensorFlow {versions['tensorflow']}, "
        f"Keras {versions['keras']}, {versions['mpi']}."
    )
    assert re.fullmatch(r"smddprun: 2 ranks have ended after \d+ s\.", end)
    assert sorted(done.stdout.splitlines()) == ["[0]<stdout>: of a rank", "[1]<stdout>: of a rank"]
    command.insert(3, "--quiet")
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stderr == ""


def test_the_line_at_the_end_has_the_speed_of_the_last_epoch() -> None:
    fits = "\n".join(
        [
            "import keras, numpy as np, smddp_tf.keras as hvd",
            "hvd.init()",
            "model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1, kernel_initializer='ones')])",
            "model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), 'mse', jit_compile=False)",
            "callbacks = [hvd.callbacks.Throughput()]",
            "seen = model.fit(np.ones((64, 2)), np.ones(64), epochs=3, verbose=0, callbacks=callbacks).history",
            "print('rate', seen['samples_per_second'][-1])",
        ]
    )
    output = smddprun("-np", "2", sys.executable, "-c", fits).check().output
    [said] = re.findall(r"smddprun: 2 ranks have ended after \d+ s; ([\d.]+) samples/s in the last epoch\.", output)
    [measured] = re.findall(r"\[0\]<stdout>: rate ([\d.]+)", output)
    assert float(said) == pytest.approx(float(measured), rel=1e-3)


def test_who_is_waited_for_in_init_is_said() -> None:
    code = "import os, time, smddp_tf as h; time.sleep(8 * (os.environ['RANK'] == '1')); h.init()"
    done = smddprun("-np", "2", sys.executable, "-c", code).check()
    assert done.output.count("smddprun: 1 of 2 ranks wait in hvd.init() for rank 1.\n") == 1


@pytest.mark.parametrize("given", [None, "0"])
def test_tensorflow_does_not_greet_unless_asked_to(given: str | None) -> None:
    tell = "import os; print('level', os.environ['TF_CPP_MIN_LOG_LEVEL'])"
    outer = {name: value for name, value in environment().items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    outer |= {} if given is None else {"TF_CPP_MIN_LOG_LEVEL": given}
    command = [sys.executable, "-m", "smddp_tf.run", "-np", "1", sys.executable, "-c", tell]
    done = subprocess.run(command, env=outer, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert f"level {given or 1}" in done.stdout


def test_variables_by_which_other_programs_know_their_rank() -> None:
    names = "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"
    tell = f"import os; print('told', *map(os.environ.get, {names}))"

    def told(**given: str) -> list[list[str]]:
        done = smddprun("-np", "2", sys.executable, "-c", tell, **given).check()
        return sorted(line.split() for line in re.findall("told (.*)", done.output))

    ports = set()
    for _ in range(2):
        (*first, port), second = told(RANK="7", WORLD_SIZE="9")  # of an outer launcher
        assert first == ["0", "2", "0", "127.0.0.1"]
        assert second == ["1", "2", "1", "127.0.0.1", port]
        assert 1024 < int(port) < 65536
        ports.add(port)
    assert len(ports) == 2
    assert told(MASTER_ADDR="10.9.8.7", MASTER_PORT="1234") == [
        ["0", "2", "0", "10.9.8.7", "1234"], ["1", "2", "1", "10.9.8.7", "1234"],
    ]  # fmt: skip


def test_the_same_variables_under_plain_mpirun() -> None:
    tell = "import os; print('told', *(os.environ.get(name) for name in ('RANK', 'WORLD_SIZE', 'LOCAL_RANK')))"
    done = launch(["-m", "smddp_tf.run", sys.executable, "-c", tell], ranks=2, timeout=PATIENCE).check()
    assert sorted(re.findall("told (.*)", done.output)) == ["0 2 0", "1 2 1"]


def test_first_failing_rank_gives_the_exit_code_and_the_tail() -> None:
    done = smddprun("-np", "2", RANKS, "fail")
    assert not done.timed_out
    assert done.returncode == 7, done.output
    assert "[0]<stdout>: begun" in done.output
    check_tail(done.output, "exit code 7, and the job with it.")


def check_tail(output: str, words: str) -> None:
    """Rank 1 is named, its traceback comes last, and nowhere else."""
    last = output.rstrip().splitlines()
    [start] = [number for number, line in enumerate(last) if line.startswith("smddprun: rank ")]
    assert re.match("smddprun: rank 1 on .*" + re.escape(words), last[start]), output
    assert last[start + 1] == "Traceback (most recent call last):"
    assert last[-1] == "ValueError: rank 1 is broken"
    assert output.count("Traceback") == 1, output


def test_the_rank_that_raised_is_named_and_not_those_that_end_of_it() -> None:
    done = smddprun("-np", "4", RANKS, "raise")
    assert done.returncode == 1, done.output
    check_tail(done.output, "exit code 1, and the job with it: ValueError: rank 1 is broken. Its traceback:")
    assert done.output.count("because of an uncaught exception: ValueError: rank 1 is broken") == 4, done.output


def test_the_rank_that_left_is_named_and_not_those_that_waited_for_it() -> None:
    done = smddprun("-np", "3", "--quiet", RANKS, "leave")
    assert done.returncode == 3, done.output
    [line] = [line for line in done.output.splitlines() if line.startswith("smddprun: ")]
    assert re.fullmatch(
        r"smddprun: rank 1 on \S+ ended with exit code 3, and the job with it. It printed nothing.", line
    )


def test_a_rank_that_ends_with_a_code_ends_those_that_are_in_code_of_their_own() -> None:
    done = smddprun("-np", "2", RANKS, "leave-alone")
    assert done.returncode == 3, done.output
    assert done.seconds < 40, done.output
    assert re.search(r"smddprun: rank 1 on \S+ ended with exit code 3, and the job with it", done.output)


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_after_a_signal(sign: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "smddp_tf.run", "-np", "2", str(RANKS), "wait"],
        cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, text=True,
    )  # fmt: skip
    try:
        assert process.stdout
        ranks = [int(re.findall(r"process (\d+)", process.stdout.readline())[0]) for _ in range(2)]
        process.send_signal(sign)
        code = process.wait(PATIENCE)
        wait_until(lambda: not any(map(is_alive, ranks)), "the ranks to end")
    finally:
        process.kill()
        said = "".join(process.communicate())
    assert ("smddprun: SIGTERM has ended the job of 2 ranks.\n" in said) == (sign == signal.SIGTERM)
    assert code == (-signal.SIGKILL if sign == signal.SIGKILL else 128 + sign)


# `python -m` would import from the current folder itself.
LAUNCHER = [sys.executable, "-c", "import sys; del sys.path[0]; from smddp_tf.run.cli import main; main()", "-np", "2"]
ENDED_BY_SIGNALS = """
import os, signal, sys, time
from pathlib import Path
path = Path(sys.argv[1], "rank" + os.environ["RANK"])
file = path.open("wb", buffering=0)
for number in signal.SIGUSR1, signal.SIGTERM:
    signal.signal(number, lambda number, _: file.write(b"%d " % number))
file.write(b"started ")
until = time.monotonic() + 60
while b"15" not in path.read_bytes() and time.monotonic() < until:
    time.sleep(0.05)
time.sleep(1.5 if sys.argv[2] == "saves" else 60)
file.write(b"saved")
"""


@pytest.mark.parametrize(
    ("manner", "sign", "code"), [("saves", signal.SIGTERM, 143), ("hangs", signal.SIGINT, 130)], ids=["one", "two"]
)
def test_each_rank_gets_each_signal_once_and_time_to_save(
    tmp_path: Path, manner: str, sign: signal.Signals, code: int
) -> None:
    """Also where the launcher is sent it twice at once, as by `timeout`. A later second signal does not wait."""
    job = subprocess.Popen([*LAUNCHER, sys.executable, "-c", ENDED_BY_SIGNALS, tmp_path, manner], env=environment())
    files = [tmp_path / f"rank{rank}" for rank in range(2)]

    def all_have(words: str) -> bool:
        return all(file.exists() and file.read_text() == words for file in files)

    try:
        wait_until(lambda: all_have("started "), "the ranks to start")
        job.send_signal(signal.SIGUSR1)
        wait_until(lambda: all_have("started 10 "), "SIGUSR1")
        job.send_signal(sign)
        time.sleep(0.001)
        job.send_signal(sign)
        wait_until(lambda: all_have("started 10 15 "), "SIGTERM")
        if manner == "hangs":
            time.sleep(0.6)
            job.send_signal(sign)
            begin = time.monotonic()
        assert job.wait(PATIENCE) == code
    finally:
        job.kill()
    assert all_have("started 10 15 saved" if manner == "saves" else "started 10 15 "), files[0].read_text()
    if manner == "hangs":
        assert time.monotonic() - begin < 8


def test_no_code_of_the_current_folder_and_no_home_and_a_program_on_standard_input(tmp_path: Path) -> None:
    for name in ("random", "secrets", "select", "struct", "token", "runpy", "socket"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('code of the current folder')\n")
    program = (
        "import sys; sys.path[:1] = []; import os, time\n"
        "print('ran', os.environ['RANK'], os.environ['PYTHONFAULTHANDLER'], len(sys.stdin.read()))"
    )
    done = subprocess.run(
        [*LAUNCHER, sys.executable, "-c", program], cwd=tmp_path, input="x" * 200_000, text=True, capture_output=True,
        env={**environment(), "HOME": ""}, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0]<stdout>: ran 0 1 200000", "[1]<stdout>: ran 1 1 0"]


@pytest.mark.parametrize("redirection", [">/dev/full", ">&-", "| true"])
def test_training_goes_on_where_its_output_cannot_be_written(tmp_path: Path, redirection: str) -> None:
    program = (
        "import os, pathlib, time\nfor step in range(8): print('step', step, flush=True); time.sleep(0.1)\n"
        f"pathlib.Path('{tmp_path}', os.environ['RANK']).touch()"
    )
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f'"$@" {redirection}', "_", *LAUNCHER, sys.executable, "-c", program],
        stderr=subprocess.PIPE, text=True, env=environment(), timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert (done.returncode, sorted(os.listdir(tmp_path))) == (0, ["0", "1"]), done.stderr
    told = [line for line in done.stderr.splitlines() if "the job continues" in line]
    assert len(told) == (0 if "-" in redirection else 1), done.stderr


APART = """
import mmap, sys, time
with open(sys.argv[1], "rb") as file:
    library = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
time.sleep(2.5)
"""


def test_ranks_that_never_join_are_told_at_the_end(tmp_path: Path) -> None:
    """TensorFlow is known by the name of its library, which the rank, or a process that it starts, has loaded."""
    library = tmp_path / "libtensorflow_framework.so.2"
    library.write_bytes(b"x" * 4096)
    words = "none of the 2 ranks called hvd.init()"
    for command in (
        [sys.executable, "-c", APART, library],
        ["sh", "-c", f'"{sys.executable}" -c "$0" {library}; true', APART],
    ):
        assert words in smddprun("-np", "2", *command).check().output
    assert words not in smddprun("-np", "2", "sleep", "2.5").check().output


def test_a_rank_that_ends_without_joining_ends_those_that_wait_for_it() -> None:
    program = "import os, smddp_tf as hvd\nif os.environ['RANK'] == '0': hvd.init()"
    done = smddprun("-np", "2", sys.executable, "-c", program)
    assert done.returncode == 1, done.output
    assert done.seconds < 60
    assert re.search(r"rank 1 on \S+ has ended, with exit code 0, without having called hvd.init\(\)", done.output)


AGENT = """#!/bin/sh
echo "$@" >> "$0.lines"
shift  # the host
exec /bin/sh -c "$*"
"""


@pytest.mark.parametrize("hosts", ["localhost:2", "localhost:1,elsewhere:1"])
def test_values_are_on_no_command_line(tmp_path: Path, hosts: str) -> None:
    """Neither on mpirun's nor on the one that goes to another host, for which something stands in for ssh."""
    if find_mpi().kind == MPICH and "elsewhere" in hosts:
        pytest.skip("the agent is Open MPI's")
    agent = tmp_path / "agent"
    agent.write_text(AGENT)
    agent.chmod(0o755)
    key = "plm_ssh_agent" if find_mpi().major >= 5 else "plm_rsh_agent"
    through = f"--{'prtemca' if find_mpi().major >= 5 else 'mca'} {key} {agent}" if "elsewhere" in hosts else ""
    done = smddprun("-H", hosts, "--mpi-args", through, "-x", "GIVEN", RANKS, "look", GIVEN="s3cret").check()
    assert done.output.count("s3cret is on 0 command lines []; []") == 2, done.output
    if through:
        assert "s3cret" not in Path(f"{agent}.lines").read_text()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    give_up_at = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < give_up_at, f"waited for {what} in vain"
        time.sleep(0.05)


def is_alive(process: int) -> bool:
    try:
        return b"ranks_without_tensorflow" in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False


def test_start_timeout_names_who_is_missing(tmp_path: Path) -> None:
    deaf = tmp_path / "mpirun"
    version = "HYDRA Version: 5.0" if find_mpi().kind == MPICH else "mpirun (Open MPI) 5.0.1"
    deaf.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "{version}" && exit\ntrap "" TERM\nsleep 600\n')
    deaf.chmod(0o755)
    done = smddprun("-np", "2", "-H", "localhost:1,203.0.113.9:1", "--start-timeout", "1", "--mpirun", deaf, "true")
    assert not done.timed_out
    assert done.returncode == 1
    assert "2 of 2 ranks had not started after 1 s" in done.output
    assert "203.0.113.9" in done.output
    assert done.seconds < 9  # it ends soon, although this mpirun does not end when it is told to


def test_a_program_that_does_not_exist() -> None:
    done = smddprun("-np", "2", "no-such-program")
    assert done.returncode == 127, done.output
    assert "'no-such-program' cannot be started: No such file or directory." in done.output
    assert done.output.count("\n") == 1  # nothing of mpirun


# What `srun --mpi=pmix` leaves of a rank's environment: PMIx, and Slurm's own variables.
AS_UNDER_SRUN = """
import os, sys
rank = os.environ["PMIX_RANK"]
for name in [name for name in os.environ if name.startswith("OMPI_COMM") or name == "OMPI_UNIVERSE_SIZE"]:
    del os.environ[name]
os.environ.update(SLURM_STEP_ID="0", SLURM_STEP_NUM_TASKS="2", SLURM_LOCALID=rank, SLURM_PROCID=rank)
os.execv(sys.executable, [sys.executable, "-m", "smddp_tf.run", *sys.argv[1:]])
"""


@pytest.mark.parametrize(
    "inner",
    [["-m", "smddp_tf.run"], ["-m", "smddp_tf.run", sys.executable], ["-c", AS_UNDER_SRUN]],
    ids=["script", "command", "srun"],
)
def test_inside_mpirun_it_is_a_rank(inner: list[str]) -> None:
    """As `mpirun python -m smddp_tf.run script.py`, and as SageMaker's `mpirun smddprun python script.py`."""
    if AS_UNDER_SRUN in inner and find_mpi().kind == MPICH:
        pytest.skip("MPICH's mpiexec gives no PMIx to pretend with")
    done = launch([*inner, RANKS, "sum"], ranks=2, timeout=PATIENCE).check()
    assert sorted(re.findall(r"rank (\d) of 2: \[3.0, 3.0, 3.0\] (\d)", done.output)) == [("0", "0"), ("1", "1")]


@pytest.mark.parametrize("family", ["horovod", "smdistributed"])
def test_scripts_of_others_run_unchanged(tmp_path: Path, family: str) -> None:
    """One launched by us, one under an mpirun that is there already; also in processes that the script starts."""
    module = {"horovod": "horovod.tensorflow", "smdistributed": "smdistributed.dataparallel.tensorflow"}[family]
    script = tmp_path / "train.py"
    script.write_text(
        f"import subprocess, sys, {module} as hvd\nhvd.init()\n"
        "print('rank', hvd.rank(), 'of', hvd.size(), hvd.rank.__module__, flush=True)\n"
        f"child = 'import {module} as hvd; print(\"child\", hvd.rank.__module__)'\n"
        "subprocess.run([sys.executable, '-c', child], check=True)\n"
    )
    if family == "horovod":
        done = smddprun("-np", "2", "--as", family, script).check()
    else:
        done = launch(["-m", "smddp_tf.run", "--as", family, script], ranks=2, timeout=PATIENCE).check()
    assert sorted(re.findall(r"rank (\d) of 2 smddp_tf", done.output)) == ["0", "1"], done.output
    assert done.output.count("child smddp_tf") == 2


def test_a_script_that_is_not_launched_runs_here(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("WORD = 'found'\n")
    script = tmp_path / "main.py"
    script.write_text("import sys, beside\nprint(__name__, beside.WORD, sys.argv)\nsys.exit(5)\n")
    done = smddprun(script, "--np", "3")
    assert done.returncode == 5
    assert done.output == f"__main__ found {[str(script), '--np', '3']}\n"


def test_run_returns_every_ranks_result(monkeypatch) -> None:
    clean(monkeypatch)
    offset = 100

    def work(factor: int, *, power: int) -> tuple[int, int]:
        import smddp_tf as hvd

        hvd.init()
        return hvd.size(), offset + factor * (hvd.rank() + 1) ** power

    assert run(work, args=(3,), kwargs={"power": 2}, num_proc=2) == [(2, 103), (2, 112)]


def test_run_raises_what_a_rank_raised(monkeypatch, capfd) -> None:
    clean(monkeypatch)

    class OwnError(Exception):
        pass

    def work() -> None:
        if os.environ["HOROVOD_RANK"] == "1":
            raise OwnError("deep inside")
        time.sleep(600)

    with pytest.raises(Exception, match="deep inside") as raised:
        run(work, num_proc=2)
    assert type(raised.value).__name__ == "OwnError"
    cause = str(raised.value.__cause__)
    assert "on rank 1" in cause
    assert re.search(r"line \d+, in work", cause), cause  # cloudpickle 3.1.3 leaves out the name of the file
    with pytest.raises(LaunchError, match="Gloo"):
        run(work, use_gloo=True)


def test_run_raises_what_one_rank_raised_and_not_what_came_of_it_elsewhere(monkeypatch) -> None:
    clean(monkeypatch)

    def work() -> None:
        import numpy as np

        import smddp_tf as hvd
        from tests.native_module import core

        hvd.init()
        for name in ("first", "second"):
            core().allreduce([np.ones(3, np.float32)], "float32", name, int(hvd.Sum))
            if hvd.rank() == 1:
                raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as raised:
        run(work, num_proc=3)
    assert "on rank 1" in str(raised.value.__cause__)


def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = environment()
    for name in set(os.environ) - set(wanted):
        monkeypatch.delenv(name)
    for name, value in wanted.items():
        monkeypatch.setenv(name, value)


def test_the_mpirun_that_is_found_is_ours() -> None:
    assert Path(find_mpi().mpirun).parent.resolve() == Path(find_mpirun()).parent.resolve()
