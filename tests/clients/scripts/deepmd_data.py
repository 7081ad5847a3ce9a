"""Data for DeePMD-kit, in its own format: `python deepmd_data.py FOLDER`. Six atoms of two types, a pair potential.

FOLDER/whole has all frames, FOLDER/rank0 and FOLDER/rank1 a half each.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

FRAMES, BOX = 8, 8.0
TYPES = np.array([0, 0, 1, 1, 1, 1])


def energies_and_forces(coord: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """E = sum over pairs of c exp(-r), with the nearest image; shapes (frames,) and (frames, atoms, 3)."""
    apart = coord[:, :, None] - coord[:, None]
    apart -= BOX * np.round(apart / BOX)
    distance = np.sqrt((apart**2).sum(-1) + np.eye(len(TYPES)))
    pair = (1.0 + TYPES[:, None] + TYPES) * np.exp(-distance) * (1 - np.eye(len(TYPES)))
    return pair.sum((1, 2)) / 2, ((pair / distance)[..., None] * apart).sum(2)


def write(folder: Path, coord: np.ndarray) -> None:
    """One system of DeePMD-kit: a folder with raw texts and one set of arrays."""
    energy, force = energies_and_forces(coord)
    frames = len(coord)
    (folder / "set.000").mkdir(parents=True)
    np.savetxt(folder / "type.raw", TYPES, fmt="%d")
    (folder / "type_map.raw").write_text("O\nH\n")
    box = np.tile((np.eye(3) * BOX).reshape(1, 9), (frames, 1))
    arrays = {"coord": coord.reshape(frames, -1), "force": force.reshape(frames, -1), "energy": energy, "box": box}
    for name, array in arrays.items():
        np.save(folder / "set.000" / f"{name}.npy", array)


def main() -> None:
    folder = Path(sys.argv[1])
    coord = np.random.default_rng(7).uniform(0, BOX, (FRAMES, len(TYPES), 3))
    half = FRAMES // 2
    for name, part in {"whole": coord, "rank0": coord[:half], "rank1": coord[half:]}.items():
        write(folder / name / "data", part)


if __name__ == "__main__":
    main()
