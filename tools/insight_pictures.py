"""Makes the pictures and the report of docs/insight.md: trains on 2 ranks with two faults, and diagnoses that.

    python tools/insight_pictures.py

Writes docs/images/insight-*.svg, and with chromium on PATH docs/images/diagnosis.png, the beginning of report.html.
Prints what `smddprun --diagnose` prints.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from smddp_tf.insight import diagnose
from smddp_tf.insight.pictures import pictures
from smddp_tf.insight.report import write_html

ROOT = Path(__file__).resolve().parents[1]
TRAINING = "rank+file"


def photograph(page: Path, picture: Path) -> None:
    """Writes what a browser shows of the page first; nothing where there is no chromium."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        print(f"{picture.name} stays as it is: there is no chromium on PATH")
        return
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1000,760"]
    subprocess.run([chromium, *flags, f"--screenshot={picture}", page.as_uri()], check=True, timeout=90)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        script = [sys.executable, ROOT / "tests/support/scripts/slowed_down.py", folder, "first", TRAINING]
        launcher = [sys.executable, "-m", "smddp_tf.run", "-np", "2", "-x", "TF_NUM_INTRAOP_THREADS=1"]
        subprocess.run([*launcher, *script], check=True, timeout=200, stdout=subprocess.DEVNULL)
        diagnosis = diagnose(Path(folder) / TRAINING)
        write_html(diagnosis, Path(folder))
        photograph(Path(folder) / "report.html", ROOT / "docs" / "images" / "diagnosis.png")
    print(diagnosis)
    for title, picture in pictures(diagnosis.recording).items():
        (ROOT / "docs" / "images" / f"insight-{title.lower()}.svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
