"""What `mkdocs build` does to the pages of docs/, so that they can stay as they are for readers of the checkout."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any


def on_config(config: Any) -> None:
    """Pages that the list in mkdocs.yml does not have yet come last."""
    listed = str(config.nav)
    folder = Path(config.docs_dir)
    for page in sorted(folder.glob("*.md")):
        if f"'{page.name}'" not in listed:
            config.nav.append(page.name)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to files of the checkout outside of docs/ become plain text: the site does not hold them."""
    folder = posixpath.dirname(page.file.src_uri)

    def kept(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link[2]))
        return link[1] if target.startswith("../") else link[0]

    return re.sub(r"\[([^\]]*)\]\(([^):#\s]+)[^)\s]*\)", kept, markdown)
