"""The site builds: no link leads nowhere, and every public name is in the reference."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.browser import needs_chromium, seen_in

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocstrings", reason="mkdocstrings, of the extra `test`, is not installed")
    pytest.importorskip("material", reason="mkdocs-material, of the extra `test`, is not installed")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        # Nothing can be fetched while it is built.
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "https_proxy": "http://127.0.0.1:9", "NO_PROXY": ""},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def public_names(module: str) -> list[str]:
    """Those of `__all__`, without importing the module: a list, to which those of other modules may be added."""
    source = ROOT / module / "__init__.py" if (ROOT / module).is_dir() else ROOT / f"{module}.py"
    names, places = [], {}
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        target = getattr(node, "target", None) or next(iter(getattr(node, "targets", [])), None)
        if isinstance(node, ast.ImportFrom) and node.module:
            places.update({each.asname or each.name: f"{node.module}.{each.name}" for each in node.names})
        elif isinstance(node, ast.Assign) and getattr(target, "id", "") == "__all__":
            names += ast.literal_eval(node.value)
        elif isinstance(node, ast.AugAssign) and getattr(target, "id", "") == "__all__":
            names += public_names(places[node.value.value.id].replace(".", "/"))
    assert names, f"{module} has no __all__"
    return names


@pytest.mark.parametrize(
    ("page", "module"),
    [
        ("smddp_tf", "smddp_tf"),
        ("keras", "smddp_tf/keras"),
        ("callbacks", "smddp_tf/keras/callbacks"),
        ("sdp", "smddp_tf/sdp"),
        ("elastic", "smddp_tf/elastic"),
    ],
)
def test_public_names_are_in_the_reference(site: Path, page: str, module: str) -> None:
    text = (site / "reference" / f"{page}.html").read_text(encoding="utf-8")
    described = {found.rpartition(".")[2] for found in re.findall(r'<h[2-4] id="(smddp_tf\.[\w.]+)"', text)}
    # They have pages of their own.
    modules = {"callbacks", "data", "elastic", "insight", "keras", "layers", "monitor", "schedules"}
    missing = set(public_names(module)) - described - modules
    assert not missing, sorted(missing)


def test_the_site_needs_no_other_site(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(?:https?:)?//', text), page


def test_examples_are_blocks_of_code(site: Path) -> None:
    """The reference has each `>>>` of the docstrings as code, and nothing that Markdown took for a quotation."""
    bs4 = pytest.importorskip("bs4", reason="beautifulsoup4, of the extra `test`, is not installed")
    examples = 0
    for page in sorted((site / "reference").glob("*.html")):
        parsed = bs4.BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")
        article = parsed.find("article")
        assert not article.find_all("blockquote"), page.name
        for paragraph in article.find_all("p"):
            assert not re.search(r">>>|```|^\.\.\. ", paragraph.get_text()), (page.name, paragraph.get_text())
            if re.fullmatch(r"Examples?:", paragraph.get_text().strip()):
                following = paragraph.find_next_sibling()
                assert "highlight" in following.get("class", []), (page.name, following)
                examples += 1
    assert examples > 30


def test_example_programs_are_pages(site: Path) -> None:
    text = re.sub("<[^>]*>", "", (site / "examples/train.html").read_text(encoding="utf-8"))
    assert "hvd.DistributedOptimizer(keras.optimizers.Adam" in text
    linking = (site / "keras-distribution.html").read_text(encoding="utf-8")
    assert 'href="examples/07_keras_distribution.html"' in linking


@needs_chromium
@pytest.mark.parametrize("page", ["index.html", "quickstart.html", "reference/smddp_tf.html"])
def test_no_block_is_cut_in_a_browser(site: Path, page: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    script = (
        "const blocks = [...document.querySelectorAll('article pre > code')];"
        "const cut = blocks.filter(e => e.clientWidth < 300 || e.scrollWidth > e.clientWidth);"
        "document.title = 'blocks ' + (blocks.length > 1) + ', cut ' + cut.length"
        " + ', wide ' + (document.documentElement.scrollWidth > innerWidth)"
    )
    found = seen_in(site / page, script, tmp_path_factory.mktemp("profile"), "1300,900")
    assert "<title>blocks true, cut 0, wide false</title>" in found, re.findall("<title>.*</title>", found)
