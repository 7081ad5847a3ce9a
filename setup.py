"""Builds the native parts with CMake and puts them into the package. Metadata is in pyproject.toml.

`pip install .`, `pip install -e .` and `make build` (= `setup.py build_ext --inplace`) all come here. The last two also
build the tests' access to the engine (tests/bindings) and the tests in C++ (tests/native), and put them into tests/;
`setup.py build_tests` does so with the first. No wheel has them. SMDDP_BUILD_TARGETS names targets of CMake to build
instead of all, `build --prebuilt=FOLDER` takes what goes into the package from there, where tools/build_wheel.py has
put it.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Command, Extension, __version__, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext
from setuptools.command.editable_wheel import editable_wheel

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "tools"))

import build_env  # noqa: E402

CACHE_TAG = sys.implementation.cache_tag or "python"
TEST_ACCESS = "_smddp_test_core"  # a target of CMake, which makes it in tests-package
NATIVE_TESTS = "smddp_native_tests"  # another: the tests in C++
INSTALL_TOOLS = f"{sys.executable} -m pip install cmake ninja nanobind"
SETUPTOOLS = 77  # as in pyproject.toml, which older ones cannot read


def check_setuptools():
    """An isolated build has what pyproject.toml asks for, any other one what is installed."""
    if int(__version__.partition(".")[0]) < SETUPTOOLS:
        remedy = f"{sys.executable} -m pip install 'setuptools>={SETUPTOOLS}'"
        raise SystemExit(build_env.message(f"setuptools {__version__} is too old.", remedy))


def find_tool(name):
    """A build tool from this environment's scripts, else from PATH (where pip's isolated build puts it)."""
    found = shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)
    if not found:
        raise build_env.BuildEnvError(build_env.message(f"the build tool {name} is missing.", INSTALL_TOOLS))
    return found


def nanobind_cmake_dir():
    try:
        import nanobind
    except ImportError:
        raise build_env.BuildEnvError(build_env.message("nanobind is missing.", INSTALL_TOOLS)) from None
    return nanobind.cmake_dir()


def cmake_arguments():
    """The definitions for CMake, all found before anything is compiled."""
    compiler = build_env.find_compiler()
    build_env.check_python_headers()
    mpi = build_env.find_mpi()
    tensorflow = build_env.find_tensorflow()
    cuda = build_env.find_cuda(compiler)
    print(
        f"smddp_tf: C++ {compiler}",
        f"MPI {mpi.library}",
        f"TensorFlow {tensorflow.version or 'none'}",
        f"CUDA {cuda.version} ({cuda.compiler[-1]})" if cuda.version else f"no CUDA ({cuda.why_none})",
        sep=", ",
        flush=True,
    )
    definitions = {
        "CMAKE_BUILD_TYPE": os.environ.get("SMDDP_BUILD_TYPE", "Release"),
        "CMAKE_CXX_COMPILER": compiler,
        "CMAKE_MAKE_PROGRAM": find_tool("ninja"),
        "Python_EXECUTABLE": sys.executable,
        "nanobind_DIR": nanobind_cmake_dir(),
        "SMDDP_MPI_INCLUDE_DIR": mpi.include_dir,
        "SMDDP_MPI_LIBRARY": mpi.library,
        "SMDDP_MPI_RUNTIME_LIBRARY": mpi.runtime_library,
        "SMDDP_TENSORFLOW_DIR": tensorflow.directory,
        "SMDDP_TENSORFLOW_VERSION": tensorflow.version,
        "SMDDP_CUDA_COMPILER": ";".join(cuda.compiler),
        "SMDDP_CUDA_VERSION": cuda.version,
        "SMDDP_CUDA_INCLUDE_DIR": cuda.include_dir,
        "SMDDP_CUDA_ARCHITECTURES": ";".join(cuda.architectures),
        "SMDDP_SANITIZE": os.environ.get("SMDDP_SANITIZE", ""),
    }
    return [f"-D{name}={value}" for name, value in definitions.items()]


def run_quietly(command, log):
    """Runs `command`; its output goes to `log` and is shown only when it fails."""
    with open(log, "w", encoding="utf-8") as out:
        failed = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, check=False).returncode != 0
    if failed:
        sys.stderr.write(Path(log).read_text(encoding="utf-8", errors="replace"))
        raise SystemExit(f"smddp_tf cannot be built: {Path(command[0]).name} failed, see above (also in {log}).")


def configure(folder):
    """Runs CMake in `folder` when it has not run yet with exactly these arguments."""
    command = [find_tool("cmake"), "-G", "Ninja", "-S", str(ROOT), "-B", str(folder), *cmake_arguments()]
    key = hashlib.sha256("\n".join(command).encode()).hexdigest()
    stamp = folder / "configured"
    if stamp.exists() and stamp.read_text() == key:
        return
    shutil.rmtree(folder, ignore_errors=True)  # Tools of an isolated build are gone afterwards: start afresh.
    folder.mkdir(parents=True)
    run_quietly(command, folder / "configure.log")
    stamp.write_text(key)


def compile_targets(folder, targets):
    """Builds them; says what it does, as ninja does."""
    jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(len(os.sched_getaffinity(0)))
    if subprocess.run([find_tool("ninja"), "-C", str(folder), "-j", jobs, *targets], check=False).returncode:
        raise SystemExit("smddp_tf cannot be built: the compiler failed, see above.")


def build_native(*targets):
    """Builds and returns CMake's folder, with the results in it. Objects stay, so the next build is incremental.

    What is built is said by targets and not by CMake's options, so that wheels and developers share a folder.
    """
    try:
        isolated = not nanobind_cmake_dir().startswith(sys.prefix)
        name = f"{'isolated' if isolated else 'native'}-{CACHE_TAG}"
        folder = Path(os.environ.get("SMDDP_BUILD_DIR") or ROOT / "build" / name)
        configure(folder)
    except build_env.BuildEnvError as error:
        raise SystemExit(str(error)) from None
    compile_targets(folder, targets)
    return folder


def test_targets():
    """What is built for developers: the tests' access, and the tests in C++ where doctest is there."""
    if build_env.has_doctest(build_env.find_compiler()):
        return [TEST_ACCESS, NATIVE_TESTS]
    print(f"smddp_tf: the tests in C++ are left out. {build_env.INSTALL_DOCTEST}", flush=True)
    return [TEST_ACCESS]


def copy_changed(source, target):
    """Copies the files of `source` that differ. One that a running program has open is replaced, not rewritten."""
    target.mkdir(parents=True, exist_ok=True)
    for file in sorted(source.iterdir()):
        to = target / file.name
        if to.exists() and to.read_bytes() == file.read_bytes():
            continue
        beside = to.with_name(f".{to.name}.new")
        shutil.copy2(file, beside)
        os.replace(beside, to)
        print(f"smddp_tf: {os.path.relpath(to, ROOT)}", flush=True)


def remove_stale(source, target):
    """Removes from `target` what an earlier build with CUDA left there: it would be loaded."""
    library = target / "libsmddp_cuda.so"
    if library.exists() and not (source / library.name).exists():
        library.unlink()
        print(f"smddp_tf: {os.path.relpath(library, ROOT)} removed", flush=True)


class CleanBuild(build):
    """Starts from an empty build/lib: what an earlier build left there would become part of the wheel."""

    user_options = [*build.user_options, ("prebuilt=", None, "a folder with what CMake would build")]  # noqa: RUF012
    # Compiling comes first, so that what is missing for it is said before files are copied.
    sub_commands = sorted(build.sub_commands, key=lambda command: command[0] != "build_ext")

    def initialize_options(self):
        super().initialize_options()
        self.build_base = os.path.join("build", "setuptools")
        self.prebuilt = None

    def run(self):
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class EditableWheel(editable_wheel):
    """`pip install -e .`: puts this folder on the path. The default, a finder, hides the types from type checkers."""

    def initialize_options(self):
        super().initialize_options()
        self.mode = "compat"


class CMakeBuild(build_ext):
    """Replaces the compilation of extensions by CMake."""

    def run(self):
        if prebuilt := self.get_finalized_command("build").prebuilt:
            shutil.copytree(prebuilt, self._target(), dirs_exist_ok=True)
            return
        targets = os.environ.get("SMDDP_BUILD_TARGETS", "").split()
        built = build_native(*(targets or ["all", *(test_targets() if self._in_place() else [])]))
        self._package = built / "package"
        copy_changed(self._package, self._target())
        remove_stale(self._package, self._target())
        if self._in_place() and (built / "tests-package").exists():
            copy_changed(built / "tests-package", ROOT / "tests")

    def _in_place(self):
        return bool(self.inplace or getattr(self, "editable_mode", False))

    def _target(self):
        return (ROOT if self._in_place() else Path(self.build_lib)) / "smddp_tf"

    def get_outputs(self):
        package = getattr(self, "_package", None)
        return [str(self._target() / file.name) for file in sorted(package.iterdir())] if package else []

    def get_output_mapping(self):
        return {}


class BuildTests(Command):
    """Builds the tests' access to the engine alone, for a package that was built or installed without it."""

    description = "build the tests' access to the engine"
    user_options = [("into=", None, "the folder whose tests/ gets it, beside the package; default: this one")]  # noqa: RUF012

    def initialize_options(self):
        self.into = str(ROOT)

    def finalize_options(self):
        pass

    def run(self):
        copy_changed(build_native(TEST_ACCESS) / "tests-package", Path(self.into) / "tests")


check_setuptools()
setup(
    # Without sources: its presence makes the wheel a platform wheel.
    ext_modules=[Extension("smddp_tf._core", sources=[])],
    cmdclass={
        "build": CleanBuild,
        "build_ext": CMakeBuild,
        "build_tests": BuildTests,
        "editable_wheel": EditableWheel,
    },
)
