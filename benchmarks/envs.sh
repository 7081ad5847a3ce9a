#!/bin/bash
# Makes the environments of the peers under .bench/, each by itself: envs.sh mpich|intel|torch|jax|horovod|simgrid...
# PYTHON is the interpreter they are made from. What exists is left alone; remove its folder to make it again.
set -eu -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PYTHON=$(readlink -f "${PYTHON:-.venv/bin/python}")

fresh() { # NAME: an empty environment, under a name of its own until it is complete
  rm -rf ".bench/$1"
  mkdir -p .bench
  "$PYTHON" -m venv ".bench/$1"
}
pip_in() { # NAME ARGUMENTS...
  local name=$1
  shift
  ".bench/$name/bin/python" -m pip --disable-pip-version-check "$@"
}

mpich() {
  fresh mpich
  pip_in mpich install -q mpich mpi4py numpy
}

# Intel MPI and oneCCL, with the library through which Python calls oneCCL.
intel() {
  fresh intel
  pip_in intel install -q impi-rt oneccl oneccl-devel mpi4py numpy
  "${CXX:-c++}" -O2 -std=c++17 -shared -fPIC -I.bench/intel/include benchmarks/backends/oneccl.cc \
    -o .bench/intel/lib/libbench_oneccl.so -L.bench/intel/lib -l:libccl.so.1 \
    -Wl,--disable-new-dtags,-rpath,"$PWD/.bench/intel/lib"
}

torch() {
  fresh torch
  pip_in torch install -q torch==2.13.0 numpy
}

jax() {
  fresh jax
  pip_in jax install -q jax keras numpy
}

# Horovod's last release: its build wants TensorFlow <= 2.15, setuptools < 70 and CMake < 4. Its MPI is the system's.
horovod() {
  local cmake
  cmake=$(PATH=/usr/bin:$PATH command -v cmake || true)
  if ! [ -x /usr/bin/mpicxx ]; then
    [ "$(id -u)" = 0 ] || { echo "horovod: no mpicxx, and no root to install it" >&2; return 1; }
    apt-get install -qq -y --no-install-recommends openmpi-bin libopenmpi-dev cmake >/dev/null
  fi
  fresh horovod
  pip_in horovod install -q 'setuptools<70' wheel tensorflow-cpu==2.15.1 mpi4py psutil pyyaml cloudpickle packaging
  PATH=/usr/bin:$PATH HOROVOD_CMAKE=${HOROVOD_CMAKE:-${cmake:-cmake}} HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITHOUT_PYTORCH=1 \
    HOROVOD_WITHOUT_MXNET=1 HOROVOD_WITH_MPI=1 HOROVOD_WITH_GLOO=1 MAKEFLAGS=-j$(nproc) \
    pip_in horovod install -q --no-build-isolation --no-cache-dir horovod==0.28.1
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 .bench/horovod/bin/python -c 'import horovod.tensorflow'
}

# SimGrid, which simulates networks: Debian's, for the Python package on the registry compiles against it anyway.
simgrid() {
  mkdir -p .bench/simgrid
  [ -e /usr/include/simgrid/s4u.hpp ] && return
  [ "$(id -u)" = 0 ] || { echo "simgrid: no libsimgrid-dev, and no root to install it" >&2; return 1; }
  apt-get install -qq -y --no-install-recommends libsimgrid-dev >/dev/null
}

for name; do
  if [ -e ".bench/$name/ready" ]; then
    echo "$name: there already"
  else
    "$name" && touch ".bench/$name/ready" && echo "$name: ready"
  fi
done
