"""Runs public programs that use Horovod, unmodified, on two ranks of smddp_tf: `make clients`.

python tools/clients.py                  all clients; prints the table
python tools/clients.py deepxde          one of them
python tools/clients.py --update-docs    also puts the table into docs/clients.md

They come from PyPI into .clients/, with smddp_tf of this checkout and the distribution of packaging/horovod. The
environment is made as those of tools/test_matrix.py are. What a client is asked to do is in tests/clients.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import sys
import tempfile
from pathlib import Path
from types import ModuleType

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import matrix_report as report
from test_matrix import Environment, Problem

from tests.clients import deepmd, deepxde
from tests.clients.jobs import FOLDER, Failed, Result

ROOT = Path(__file__).resolve().parent.parent
TENSORFLOW = "2.21"  # the one that the wheel of DeePMD-kit needs
# Name -> requirements, what runs it, steps. DeepXDE's backend `tensorflow` imports tensorflow_probability and tf_keras.
CLIENTS: dict[str, tuple[tuple[str, ...], ModuleType, int]] = {
    "deepmd": (("deepmd-kit[cpu,mpi]==3.2.0",), deepmd, 30),
    "deepxde": (("deepxde==1.15.0", "tensorflow_probability"), deepxde, 50),
}
PAGE = ROOT / "docs" / "clients.md"
BEGIN, END = "<!-- clients: begin -->", "<!-- clients: end -->"


def make() -> None:
    """Makes or completes the environment.

    The extra `mpi` of DeePMD-kit requires a distribution `horovod`, which pip finds to be there.

    Raises:
        Problem: says which step failed, and where its log is.
    """
    [version] = report.chosen([TENSORFLOW])
    environment = Environment(version, folder=FOLDER)
    environment.make()
    environment.install()
    environment.facts()
    environment.pip("horovod", "--no-build-isolation", "--no-deps", str(environment.checkout / "packaging" / "horovod"))
    environment.pip("clients", *(name for requirements, _, _ in CLIENTS.values() for name in requirements))
    # tf_keras asks for `tensorflow`, which is `tensorflow-cpu` here.
    complaints = f"{environment.python} -m pip check | grep -v '^tf-keras ' | grep requires"
    environment.run("check", ["bash", "-c", f"! {complaints}"])


def results(names: list[str]) -> list[Result]:
    """Runs the clients; whatever goes wrong becomes part of a row."""
    rows = []
    for name in names:
        _, client, steps = CLIENTS[name]
        with tempfile.TemporaryDirectory(prefix="smddp-client-") as folder:
            try:
                for row in client.check(Path(folder), steps):
                    rows.append(row)
                    print(f"--- {row.client}: {row.ran}: {_outcome(row)}", flush=True)
            except Failed as error:
                print(error, file=sys.stderr)
                rows.append(Result(client.CLIENT, "", problem=str(error).splitlines()[0]))
    return rows


def table(rows: list[Result]) -> str:
    """The rows in Markdown."""
    lines = ["| client | version | what ran | largest relative difference from one process |", "|---|---|---|---|"]
    versions = {d.metadata["Name"].lower(): d.version for d in importlib.metadata.distributions(path=_site_packages())}
    for row in rows:
        lines.append(f"| {row.client} | {versions.get(row.client, '')} | {row.ran} | {_outcome(row)} |")
    day, tensorflow = datetime.date.today().isoformat(), versions.get("tensorflow_cpu", TENSORFLOW)
    return "\n".join([*lines, "", f"Measured on {day} with TensorFlow {tensorflow} and 2 ranks on one machine."])


def _outcome(row: Result) -> str:
    if row.problem:
        return f"**{row.problem}**"
    if row.difference is None:
        return "-"
    return f"{row.difference:.1e}" if row.ok else f"**{row.difference:.1e}**, expected {row.most:.0e} at most"


def _site_packages() -> list[str]:
    return [str(folder) for folder in FOLDER.glob("lib/python*/site-packages")]


def main() -> int:
    """Returns 0 when every client ended near one process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "clients", nargs="*", choices=[[], *CLIENTS], metavar="CLIENT", help=f"{', '.join(CLIENTS)}; all by default"
    )
    parser.add_argument("--update-docs", action="store_true", help=f"put the table into {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    try:
        make()
    except Problem as problem:
        print(problem, file=sys.stderr)
        return 1
    rows = results(options.clients or list(CLIENTS))
    text = table(rows)
    print(f"\n{text}\n")
    if not all(row.ok for row in rows):
        return 1
    if options.update_docs and not options.clients:
        PAGE.write_text(report.between(PAGE.read_text(encoding="utf-8"), text, BEGIN, END), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
