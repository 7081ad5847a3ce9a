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


def on_files(files: Any, config: Any) -> Any:
    """Adds a page for each example program."""
    from mkdocs.structure.files import File

    for program in _programs(config):
        text = f"# {program.name}\n\n```python\n{program.read_text(encoding='utf-8')}```\n"
        files.append(File.generated(config, f"examples/{program.stem}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Links to example programs lead to their pages. Links to other files outside of docs/ become plain text."""
    folder = posixpath.dirname(page.file.src_uri)
    examples = {f"../examples/{program.name}": f"examples/{program.stem}.md" for program in _programs(config)}

    def kept(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link[2]))
        if target in examples:
            return f"[{link[1]}]({posixpath.relpath(examples[target], folder or '.')})"
        return link[1] if target.startswith("../") else link[0]

    return re.sub(r"\[([^\]]*)\]\(([^):#\s]+)[^)\s]*\)", kept, markdown)


def _programs(config: Any) -> list[Path]:
    return sorted((Path(config.docs_dir).parent / "examples").glob("*.py"))
