"""The documents do not point to what is not there: links, and the texts of errors."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
SOURCES = [
    *(ROOT / "tf_ops").rglob("*.cc"),
    *(ROOT / "tf_ops").rglob("*.h"),
    *(ROOT / "smddp_tf").rglob("*.py"),
    *(ROOT / "tools").rglob("*.py"),
]


def source_text() -> str:
    """All sources, with string literals that continue each other joined, and without what stands between them."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES)
    return re.sub(r'"\s*(?:\+?\s*f?)"', "", text)


def documented_errors() -> list[str]:
    """The fixed parts of the messages in docs/errors.md: of each item what stands before its `<br>`."""
    fragments = []
    text = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    for item in re.split(r"^- ", text, flags=re.MULTILINE):
        messages, mark, _ = item.partition("<br>")
        for span in re.findall(r"(`+)(.+?)\1", messages if mark else ""):
            fragments += [part.strip() for part in re.split(r"\.\.\.", span[1])]
    return [fragment for fragment in fragments if len(fragment) > 5]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_documented_errors_exist() -> None:
    text = source_text()
    known = {"BROADCAST", "ALLGATHER", "ALLTOALL", "REDUCESCATTER"}  # put into the sentence at run time
    fragments = [re.sub(r"^Mismatched (ALLREDUCE|BROADCAST) ", "", fragment) for fragment in documented_errors()]
    fragments = [fragment.removeprefix("Mismatched ") for fragment in fragments if fragment not in known]
    assert len(fragments) > 40
    missing = [fragment for fragment in fragments if fragment not in text]
    assert not missing, f"docs/errors.md lists messages that no source contains: {missing}"


def test_messages_in_troubleshooting_exist() -> None:
    """In the tables' first column a message stands in backticks, alone."""
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    messages = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    fragments = [part.strip() for message in messages for part in message.split("...") if len(part.strip()) > 5]
    assert len(fragments) > 12
    text = source_text()
    assert not [fragment for fragment in fragments if fragment not in text]


def test_public_documents_speak_for_themselves() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert "../shared" not in text, page
        assert not re.search(r"\bissue \d", text), page


def paths_named_in(page: Path) -> set[str]:
    """What stands in backticks and looks like a file or a folder of this checkout."""
    folders = {path.name for path in ROOT.iterdir() if path.is_dir()}
    spans = re.findall(r"`([\w.*/-]+)`", page.read_text(encoding="utf-8"))
    return {span for span in spans if "/" in span and span.split("/")[0] in folders - {"build", "site", ".venv"}}


@pytest.mark.parametrize(
    "page",
    [ROOT / "CONTRIBUTING.md", ROOT / "docs/architecture.md", *sorted((ROOT / "docs/decisions").glob("*.md"))],
    ids=lambda page: page.stem,
)
def test_named_files_exist(page: Path) -> None:
    """Of pages for developers. Native files may be named from tf_ops/ on."""
    folders = sorted(path.name for path in (ROOT / "tf_ops").iterdir() if path.is_dir())
    native = re.findall(rf"`((?:{'|'.join(folders)})/[\w./-]+)`", page.read_text(encoding="utf-8"))
    missing = {name for name in paths_named_in(page) if not list(ROOT.glob(name))}
    missing |= {name for name in native if not list((ROOT / "tf_ops").glob(f"{name.rstrip('/')}*"))}
    assert not missing


@pytest.mark.parametrize("page", sorted((ROOT / "docs/decisions").glob("0*.md")), ids=lambda page: page.stem)
def test_decisions_have_one_form(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^## (.*)", text, flags=re.MULTILINE)
    assert headings[:4] == ["Context", "Options", "Decision", "Consequences"]
    assert f"({page.name})" in (page.parent / "README.md").read_text(encoding="utf-8")


def strings_of(source: Path) -> list[str]:
    """The strings of a Python file without its docstrings, with literals that continue each other joined."""
    nodes = list(ast.walk(ast.parse(source.read_text(encoding="utf-8"))))
    documentation = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    constants = [node for node in nodes if isinstance(node, ast.Constant) and id(node) not in documentation]
    return [node.value for node in constants if isinstance(node.value, str)]


def test_a_shard_is_rows_of_the_data() -> None:
    """Optimizer state, tables and variables are partitioned (docs/concepts.md), in pages for users and in messages."""
    of_state = re.compile(r"\bshards of lost|\bsharded (?:over|optimizer|state|tables|variables)", re.IGNORECASE)
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    said = [(page.name, page.read_text(encoding="utf-8")) for page in pages]
    said += [(path.name, text) for path in (ROOT / "smddp_tf").rglob("*.py") for text in strings_of(path)]
    assert not [(name, found[0]) for name, text in said if (found := of_state.search(text))]


def test_lines_fit_a_screen() -> None:
    lines = [(page.name, line) for page in PAGES for line in page.read_text(encoding="utf-8").splitlines()]
    assert not [each for each in lines if len(each[1]) > 120]


def test_asterisks_of_text_are_in_code() -> None:
    """Two of them in a paragraph, as in `2*(P-1)` or `SLURM_*`, would vanish and set what is between in italics."""
    code = re.compile(r"^ *```.*?^ *```|<!--.*?-->|`[^`]*`", re.MULTILINE | re.DOTALL)
    for page in PAGES:
        text = code.sub("", page.read_text(encoding="utf-8"))
        assert not re.findall(r".*(?:[\w\])]\*[\w(\[]|_\*).*", text), page.name


def in_docs(text: str) -> str:
    """The text of README with its links as seen from docs/."""
    return re.sub(r"\]\((?!https?:|#)(docs/)?", lambda found: "](" if found[1] else "](../", text)


def test_the_home_page_begins_as_the_readme() -> None:
    first_screen = (ROOT / "README.md").read_text(encoding="utf-8").partition("## How it works")[0]
    home = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    assert home.partition("## Where to go")[0] == in_docs(first_screen), "edit README.md, and copy"


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_all_pages_are_linked(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    linked = {
        found.partition("#")[0] for found in re.findall(r"\]\(([^)]+)\)", in_docs(text) if "/" not in page else text)
    }
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    others = {name for name in pages if name.startswith("decisions/0")} | {"index.md"}
    assert pages - others <= linked
