"""Files are written where they were asked for: no link is followed, and a file that cannot be finished is not begun."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from smddp_tf.exceptions import LaunchError
from smddp_tf.run.output.output import Output

ROOT = Path(__file__).resolve().parents[2]
# Each writes in a way of its own that follows no link; see the file.
WRITERS = {
    "smddp_tf/_native/compiled_ops.py": "XDG_CACHE_HOME",  # the user's own folder
    "smddp_tf/elastic/commits.py": "O_NOFOLLOW",
    "smddp_tf/insight/report.py": "monitor.lines import opened",
    "smddp_tf/keras/saving/atomic_files.py": "O_NOFOLLOW",
    "smddp_tf/monitor/lines.py": "O_NOFOLLOW",
    "smddp_tf/run/launch/job.py": "os.pipe()",  # the job's standard input
    "smddp_tf/run/output/output.py": "monitor.lines import opened",
    "smddp_tf/spark.py": "os.dup(1)",  # a pipe
}


def writes(call: ast.Call) -> bool:
    """Whether this opens a file for writing, as far as the source tells."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    is_method = isinstance(call.func, ast.Attribute)  # path.open("w"), os.fdopen(file, "w")
    modes = [argument.value for argument in call.args[0 if is_method else 1 : 2] if isinstance(argument, ast.Constant)]
    modes += [word.value.value for word in call.keywords if word.arg == "mode" and isinstance(word.value, ast.Constant)]
    opens = name in ("open", "fdopen") and any(set(str(mode)) & set("wax+") for mode in modes)
    return opens or name in ("write_text", "write_bytes", "touch")


def test_who_writes_files() -> None:
    found = set()
    for path in (ROOT / "smddp_tf").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if any(isinstance(node, ast.Call) and writes(node) for node in ast.walk(tree)):
            found.add(path.relative_to(ROOT).as_posix())
    assert found <= set(WRITERS), "New files are written: follow no link there, and add it to the list"
    for name, how in WRITERS.items():
        assert how in (ROOT / name).read_text(encoding="utf-8"), name


def test_the_native_part_opens_files_in_one_place() -> None:
    """runtime/timeline/timeline.cc; shared memory is made anew or opened by an unguessable name."""
    for path in (ROOT / "tf_ops").rglob("*.cc"):
        text = path.read_text(encoding="utf-8")
        assert "fopen(" not in text, path
        assert "ofstream" not in text, path
        if "O_CREAT" in text:
            assert "O_NOFOLLOW" in text or "O_EXCL" in text, path


def test_copies_of_the_output_follow_no_link(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("of somebody else")
    (tmp_path / "rank.0").mkdir()
    (tmp_path / "rank.0" / "stdout").symlink_to(other)
    with pytest.raises(LaunchError, match="symbolic links"):
        Output(1, str(tmp_path))
    assert other.read_text() == "of somebody else"


def test_a_full_disk_ends_the_copy_of_the_output_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rank.0").mkdir()
    with Output(1, str(tmp_path)) as output:
        output._files[0, 0].close()
        output._files[0, 0] = open("/dev/full", "wb", buffering=0)  # noqa: SIM115
        output.write(0, 0, b"one\n")
        output.write(0, 0, b"two\n")
    printed = capsys.readouterr()
    assert "two" in printed.out
    assert printed.err.count("smddprun: /dev/full: No space left on device. This file ends here.") == 1
