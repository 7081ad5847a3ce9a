"""A browser without a window, to look at pages as they are laid out."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no chromium on PATH (Debian: apt-get install chromium)"
)


def seen_in(page: Path, script: str, profile: Path, size: str) -> str:
    """The page's elements after `script` has run at its end, as HTML.

    Args:
        page: a file; a copy of it beside it is opened.
        script: JavaScript.
        profile: folder for the browser's own files.
        size: of the window, "width,height" in pixels.
    """
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    flags += ["--disable-component-update", "--disable-sync", f"--user-data-dir={profile}", f"--window-size={size}"]
    copy = page.with_name(f"seen-{page.name}")
    text = page.read_text(encoding="utf-8")
    copy.write_text(text.replace("</body>", f"<script>{script}</script></body>"), encoding="utf-8")
    command = [str(CHROMIUM), *flags, "--dump-dom", copy.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=True).stdout
