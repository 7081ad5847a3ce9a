"""Jobs started by `smddprun` and by `smddp_tf.run.run`. Most ranks do without TensorFlow: they start in no time."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from smddp_tf.lifecycle.versions import shown
from smddp_tf.run.launch.mpi import MPICH, find_mpi
from tests.run.started import LAUNCHER, PATIENCE, RANKS, smddprun
from tests.support.mpirun import environment

pytestmark = pytest.mark.launches


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


WAITED_FOR = """
import os, pathlib, sys, time
import smddp_tf as hvd
waits = pathlib.Path(sys.argv[1])
if os.environ["RANK"] == "0":
    waits.touch()
else:
    while not waits.exists():
        time.sleep(0.05)
    time.sleep(8)
hvd.init()
"""


def test_who_is_waited_for_in_init_is_said(tmp_path: Path) -> None:
    done = smddprun("-np", "2", sys.executable, "-c", WAITED_FOR, tmp_path / "waits").check()
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


def test_first_failing_rank_gives_the_exit_code_and_the_tail(tmp_path: Path) -> None:
    done = smddprun("-np", "2", RANKS, "fail", tmp_path)
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


KILLED_IN_ITS_TRACEBACK = """
import os, pathlib, signal, sys, time
def told(*_):
    print("Traceback (most recent call last):\\nValueError: without rank 1", file=sys.stderr, flush=True)
    time.sleep(60)
signal.signal(signal.SIGTERM, told)
waits = pathlib.Path(sys.argv[1])
if os.environ["RANK"] == "1":
    while not waits.exists():
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)
waits.touch()
time.sleep(60)
"""


def test_the_report_comes_after_what_the_other_ranks_print_until_mpirun_kills_them(tmp_path: Path) -> None:
    done = smddprun("-np", "2", sys.executable, "-c", KILLED_IN_ITS_TRACEBACK, tmp_path / "waits")
    assert done.returncode == 137, done.output
    others = done.output.index("[0]<stderr>: ValueError: without rank 1")
    assert others < done.output.index("smddprun: rank 1 on "), done.output


def test_a_rank_that_ends_with_a_code_ends_those_that_are_in_code_of_their_own() -> None:
    done = smddprun("-np", "2", RANKS, "leave-alone")
    assert done.returncode == 3, done.output
    assert re.search(r"smddprun: rank 1 on \S+ ended with exit code 3, and the job with it", done.output)


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
time.sleep(4)
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
        output = smddprun("-np", "2", *command).check().output
        assert words in output
        assert "unchanged script with model.fit: smddprun --keras-distribution" in output
    assert words not in smddprun("-np", "2", "sleep", "4").check().output


def test_a_rank_that_ends_without_joining_ends_those_that_wait_for_it() -> None:
    program = "import os, smddp_tf as hvd\nif os.environ['RANK'] == '0': hvd.init()"
    done = smddprun("-np", "2", sys.executable, "-c", program)
    assert done.returncode == 1, done.output
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


def test_start_timeout_names_who_is_missing(tmp_path: Path) -> None:
    """And ends soon, although this mpirun goes on when it is told to end."""
    deaf, told = tmp_path / "mpirun", tmp_path / "told"
    version = "HYDRA Version: 5.0" if find_mpi().kind == MPICH else "mpirun (Open MPI) 5.0.1"
    lines = [
        "#!/bin/sh", f'[ "$1" = --version ] && echo "{version}" && exit',
        f'trap ": > {told}" TERM', "while :; do sleep 0.2; done",  # it has half a second for this
    ]  # fmt: skip
    deaf.write_text("\n".join(lines))
    deaf.chmod(0o755)
    done = smddprun("-np", "2", "-H", "localhost:1,203.0.113.9:1", "--start-timeout", "3", "--mpirun", deaf, "true")
    assert not done.timed_out
    assert done.returncode == 1
    assert "2 of 2 ranks had not started after 3 s" in done.output
    assert "203.0.113.9" in done.output
    assert time.time() - told.stat().st_mtime < 9


def test_a_program_that_does_not_exist() -> None:
    done = smddprun("-np", "2", "no-such-program")
    assert done.returncode == 127, done.output
    assert "'no-such-program' cannot be started: No such file or directory." in done.output
    assert done.output.count("\n") == 1  # nothing of mpirun
