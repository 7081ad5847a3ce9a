"""What a rank starts: multiprocessing imports this file again; another child is a program.  python children.py"""

import multiprocessing
import subprocess
import sys

import smddp_tf as hvd

hvd.init(process_sets=[hvd.ProcessSet([0]), hvd.ProcessSet([1])])

PROGRAM = "import smddp_tf as hvd; hvd.init([0, 1]); print(hvd.rank(), hvd.size(), hvd.mpi_enabled())"


def load(i: int) -> tuple[int, int]:
    return i * i, hvd.size()


def main() -> None:
    rank = hvd.rank()
    for method in ("spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            assert pool.map(load, range(rank, rank + 4)) == [(i * i, 1) for i in range(rank, rank + 4)], method
    program = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert program.stdout == "0 1 False\n", program
    assert f"is a child of rank {rank} and none of the job's ranks" in program.stderr, program
    assert hvd.allgather_object((rank, hvd.size())) == [(0, 2), (1, 2)]
    print(f"rank {rank} has worked with its children")


if __name__ == "__main__":
    main()
