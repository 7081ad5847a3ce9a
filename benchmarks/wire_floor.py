"""What plain sockets take for the bytes of an allreduce between nodes: `python -m benchmarks.wire_floor [--nodes 4 8]`.

Each node of the lab streams to the next one, over one connection, what a ring allreduce sends on its link, while it
receives as much: no algorithm, and nothing is added up. The bound that `benchmarks.lab` divides by counts the bytes of
the tensor alone. On the wire these have headers (66 bytes for each 1,448), and acknowledgements go the other way.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.lab import Lab, why_not
from benchmarks.measure import wire_bound

__all__ = ["main"]

MIB, PORT, REPEATS = 1 << 20, 4720, 5


def address(node: int) -> str:
    return f"10.77.0.{node + 1}"  # by the lab's script


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wire_floor", description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--rates", type=int, nargs="+", default=[200, 1000], help="Mbit/s")
    parser.add_argument("--mebibytes", type=int, nargs="+", default=[1, 25, 100])
    options = parser.parse_args()
    if reason := why_not():
        sys.exit(reason)
    table = Table("lab", *(f"{size} MiB" for size in options.mebibytes), title="plain sockets, of the wire's bound")
    for nodes in options.nodes:
        for rate in options.rates:
            seconds = measured(nodes, rate, options.mebibytes)
            bounds = [wire_bound(size * MIB, nodes, rate * 1e6) for size in options.mebibytes]
            table.add_row(f"{nodes} nodes, {rate} Mbit/s", *(f"{s / b:.3f}" for s, b in zip(seconds, bounds)))
    Console().print(table)


def measured(nodes: int, rate: int, mebibytes: list[int]) -> list[float]:
    """Medians of the slowest node's seconds."""
    counts = [str(2 * (nodes - 1) * size * MIB // nodes) for size in mebibytes]
    with Lab(nodes, rate) as lab, tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(nodes) as pool:
        words = [sys.executable, "-m", "benchmarks.wire_floor", "node"]
        for code, output in pool.map(lambda n: lab.execute(n, *words, n, nodes, folder, *counts), range(nodes)):
            if code:
                raise RuntimeError(output)
        times = [json.loads(Path(folder, f"{node}.json").read_text(encoding="utf-8")) for node in range(nodes)]
    return [statistics.median(map(max, zip(*of_size))) for of_size in zip(*times)]


def node(me: int, nodes: int, folder: str, counts: list[int]) -> None:
    """Writes the seconds of each repetition, for each count."""
    with socket.create_server((address(me), PORT)) as server:
        after = _connected((address((me + 1) % nodes), PORT))
        before, _ = server.accept()
    with after, before:
        times = [[_streamed(after, before, count) for _ in range(REPEATS)] for count in counts]
    Path(folder, f"{me}.json").write_text(json.dumps(times), encoding="utf-8")


def _connected(peer: tuple[str, int]) -> socket.socket:
    for _ in range(100):
        try:
            return socket.create_connection(peer)
        except OSError:
            time.sleep(0.1)
    raise TimeoutError(f"{peer} does not listen")


def _streamed(after: socket.socket, before: socket.socket, count: int) -> float:
    for _ in range(2):  # once around, twice: then all are here
        after.sendall(b"\0")
        before.recv(1)
    payload, buffer, begun = os.urandom(MIB), bytearray(MIB), time.perf_counter()
    sender = threading.Thread(target=_send, args=(after, payload, count))
    sender.start()
    left = count
    while left:
        left -= before.recv_into(buffer, min(left, MIB))
    sender.join()
    return time.perf_counter() - begun


def _send(after: socket.socket, payload: bytes, count: int) -> None:
    while count:
        after.sendall(payload[:count])
        count -= min(count, len(payload))


if __name__ == "__main__":
    if sys.argv[1:2] == ["node"]:
        node(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], list(map(int, sys.argv[5:])))
    else:
        main()
