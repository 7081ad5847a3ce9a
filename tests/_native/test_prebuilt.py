"""What a wheel chooses: the MPI and the part for it, and the op libraries for the TensorFlow that is installed."""

from smddp_tf._native import prebuilt


def test_without_a_launcher_what_pip_installed_comes_before_the_systems(wheel):
    assert wheel() == ""
    assert wheel(there=["libmpich.so.12"]) == "libmpich.so.12"
    assert wheel(there=["libmpi.so.12", "libmpi.so.40"]) == "libmpi.so.40"
    assert wheel(installed=["libmpi.so.12"], there=["libmpi.so.40"]) == "lib/libmpi.so.12"
    assert wheel(installed=["libmpi.so.40"]) == "lib/libmpi.so.40"


def test_the_launcher_decides_between_two_kinds(wheel, monkeypatch):
    monkeypatch.setenv("PMI_RANK", "1")
    assert wheel(installed=["libmpi.so.40"], there=["libmpi.so.12"]) == "libmpi.so.12"
    assert wheel(there=[]) == "lib/libmpi.so.40"
    monkeypatch.setenv("PMIX_RANK", "1")
    assert wheel(installed=["libmpi.so.12"]) == "lib/libmpi.so.40"


def test_two_mpis_never_meet_in_a_process(wheel, monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    assert wheel(installed=["libmpi.so.40"], in_the_process=["libmpi.so.12"]) == "libmpi.so.12"


def test_a_build_from_sources_has_the_mpi_it_was_built_with(wheel, monkeypatch):
    monkeypatch.setattr(prebuilt, "build_info", {"MPI_LIBRARY": "/opt/lib/libmpi.so.12"}.get)
    assert wheel(installed=["libmpi.so.40"]) == "/opt/lib/libmpi.so.12"


def test_the_part_for_mpi_is_that_of_the_library(wheel):
    names = [prebuilt.mpi_part(name).name for name in ("/env/lib/libmpi.so.40", "libmpich.so.12", "libmpi.so.99")]
    assert names == ["libsmddp_mpi.mpi40.so", "libsmddp_mpi.mpi12.so", "libsmddp_mpi.so"]


def test_the_minor_version_of_tensorflow_chooses_the_ops(wheel):
    assert prebuilt.minors() == ["2.9", "2.16", "2.21"]
    assert prebuilt.op_folder("2.21.3") == prebuilt.FOLDER / "tensorflow-2.21"
    assert prebuilt.op_folder("2.2.0") is None
