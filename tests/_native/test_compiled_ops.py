"""Ops that are compiled for a TensorFlow that a wheel has none for: once, into a cache of this user alone."""

import os
import types

import pytest

from smddp_tf._native import compiled_ops


def test_without_a_compiler_a_new_tensorflow_is_refused_in_one_sentence(wheel, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(compiled_ops, "_tool", lambda name: None)
    with pytest.raises(
        ImportError, match=r"ready for TensorFlow 2\.9, 2\.16, 2\.21; 2\.22\.0 is installed.*pip install"
    ):
        compiled_ops.compiled(types.SimpleNamespace(__version__="2.22.0"))


def test_ops_that_are_compiled_are_compiled_once(wheel, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(compiled_ops, "_tool", lambda name: f"/bin/{name}")
    commands = []
    monkeypatch.setattr(compiled_ops, "_run", lambda command, version: commands.append(list(map(str, command))))
    tensorflow = types.SimpleNamespace(__version__="2.22.0", __file__="/site/tensorflow/__init__.py")
    with pytest.warns(UserWarning, match=r"compiles its ops for TensorFlow 2\.22\.0"):
        folder = compiled_ops.compiled(tensorflow)
    assert compiled_ops.compiled(tensorflow) == folder
    assert folder.is_relative_to(tmp_path / "smddp_tf")
    assert [command[0] for command in commands] == ["/bin/cmake", "/bin/cmake"]
    assert "-DSMDDP_TENSORFLOW_DIR=/site/tensorflow" in commands[0]
    assert any(word.startswith("-DSMDDP_ENGINE=") and word.endswith(".so") for word in commands[0])


def test_a_cache_that_others_could_have_written_is_refused(wheel, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(compiled_ops, "_tool", lambda name: f"/bin/{name}")
    monkeypatch.setattr(compiled_ops, "_run", lambda command, version: None)
    monkeypatch.setattr(compiled_ops, "build_info", lambda name: "commit")
    tensorflow = types.SimpleNamespace(__version__="2.22.0", __file__="/site/tensorflow/__init__.py")
    with pytest.warns(UserWarning, match="compiles its ops"):
        package = compiled_ops.compiled(tensorflow)
    package.mkdir()
    library = package / "libsmddp_tf_ops.so"
    library.touch(mode=0o600)
    package.chmod(0o700)
    assert compiled_ops.compiled(tensorflow) == package
    for path in (library, package, *list(package.parents)[:3]):
        mode = path.stat().st_mode
        path.chmod(mode | 0o020)
        with pytest.raises(ImportError, match=rf"{path} is not used: .* Found: mode .* set XDG_CACHE_HOME"):
            compiled_ops.compiled(tensorflow)
        path.chmod(mode)
    if os.geteuid() == 0:
        os.chown(package.parent, 12345, -1)
        with pytest.raises(ImportError, match="user 12345"):
            compiled_ops.compiled(tensorflow)
        os.chown(package.parent, 0, -1)
    library.unlink()
    library.symlink_to(tmp_path / "elsewhere.so")
    with pytest.raises(ImportError, match="is not used"):
        compiled_ops.compiled(tensorflow)


def test_the_lock_of_the_cache_is_no_link(wheel, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(compiled_ops, "_tool", lambda name: f"/bin/{name}")
    monkeypatch.setattr(compiled_ops, "build_info", lambda name: "commit")
    cache = tmp_path / "cache" / "smddp_tf" / "commit"
    cache.mkdir(parents=True, mode=0o755)
    (tmp_path / "file").write_text("important")
    (cache / "lock").symlink_to(tmp_path / "file")
    with pytest.raises(ImportError, match="lock is not used"):
        compiled_ops.compiled(types.SimpleNamespace(__version__="2.22.0", __file__="/site/tensorflow/__init__.py"))
    assert (tmp_path / "file").read_text() == "important"
