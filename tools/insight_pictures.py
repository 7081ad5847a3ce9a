"""Makes the pictures and the report of docs/insight.md: trains on 2 ranks with two faults, and diagnoses that.

    python tools/insight_pictures.py

Writes docs/images/insight-*.svg and prints what `smddprun --diagnose` prints.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from smddp_tf.insight import diagnose
from smddp_tf.insight.pictures import pictures

ROOT = Path(__file__).resolve().parents[1]
TRAINING = "rank+file"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        script = [sys.executable, ROOT / "tests/support/scripts/slowed_down.py", folder, "first", TRAINING]
        launcher = [sys.executable, "-m", "smddp_tf.run", "-np", "2", "-x", "TF_NUM_INTRAOP_THREADS=1"]
        subprocess.run([*launcher, *script], check=True, timeout=200, stdout=subprocess.DEVNULL)
        diagnosis = diagnose(Path(folder) / TRAINING)
    print(diagnosis)
    for title, picture in pictures(diagnosis.recording).items():
        (ROOT / "docs" / "images" / f"insight-{title.lower()}.svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
