# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
#
#   make demo    builds the library and trains a recommender on MovieLens-100K
#   make test    builds it and runs the tests
#
# Needs Python 3.10 to 3.13, g++ and make. Everything else goes into .venv and build/, and a second
# run installs and builds nothing. PYTHON=python3.12 chooses the interpreter; CUDA=on or off decides
# about the CUDA kernels, which otherwise are built where there is a GPU.
PYTHON ?= python3
CUDA ?= $(if $(shell nvidia-smi -L 2>/dev/null),on,off)
BIN := .venv/bin
PY := $(BIN)/python
export PATH := $(CURDIR)/$(BIN):$(PATH)

.DEFAULT_GOAL := build
.NOTPARALLEL:
.PHONY: build demo test test-quick test-gpu release-check test-native test-sanitize horovod test-horovod \
  test-cuda-build test-oldest wheel test-wheel lint clean

# ---- the environment: a stamp says that it holds what the file lists -----------------------------
# $(1): interpreter, $(2): folder, $(3): requirements
define environment
tools/make_venv.sh $(1) $(2)
$(2)/bin/python -m pip install --quiet --disable-pip-version-check -r $(3)
touch $(2)/.installed
endef

INSTALLED := .venv/.installed
$(INSTALLED): requirements-dev.txt
	$(call environment,$(PYTHON),.venv,$<)

# ---- the library, in place in sok/ ---------------------------------------------------------------
# Configured each time, which takes a second: CUDA= and another TensorFlow then count.
# $(1): build folder, $(2): python, $(3): package to put it into, $(4): CUDA
define native_library
cmake -S . -B $(1) -G Ninja --log-level=WARNING -DPython3_EXECUTABLE=$(CURDIR)/$(2) \
  -DSOK_OUTPUT_DIR=$(CURDIR)/$(3) -DSOK_CUDA=$(4)
ninja -C $(1)
endef

# The environment finds the checkout's package: so do scripts and notebooks, wherever they are started.
build: $(INSTALLED)
	$(call native_library,build/release,$(PY),sok,$(CUDA))
	echo $(CURDIR) > $$($(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/sok_checkout.pth

demo: build
	$(PY) -m sok.models.movielens_demo

# ---- tests ---------------------------------------------------------------------------------------
test: build test-native
	$(PY) -m pytest -m "not packaging" --ignore=tests/distributed

test-quick: build
	$(PY) -m pytest -m "not packaging and not slow" --ignore=tests/distributed

# On a machine with a GPU: SEED=1 make test-gpu. The summary, copied to tests/gpu/results/h200.json, is the
# proof that the release check asks for.
test-gpu: build
	cmake -S . -B build/gpu -G Ninja --log-level=WARNING -DSOK_BUILD_OPS=OFF \
	  -DSOK_BUILD_NATIVE_TESTS=ON -DSOK_CUDA=on
	ninja -C build/gpu sok_gpu_tests
	PY=$(PY) tests/gpu/run.sh build/gpu/summary.json $(or $(SEED),0)

release-check: $(INSTALLED)
	$(PY) tests/gpu/proof.py --check tests/gpu/results/h200.json

# Without TensorFlow: the core and the CPU loops. $(1): build folder, $(2): sanitizers
define native_tests
cmake -S . -B $(1) -G Ninja --log-level=WARNING -DSOK_BUILD_OPS=OFF -DSOK_BUILD_NATIVE_TESTS=ON \
  -DSOK_CUDA=off -DSOK_SANITIZE=$(2)
ninja -C $(1)
ctest --test-dir $(1) --output-on-failure
endef

test-native: $(INSTALLED)
	$(call native_tests,build/native,)

, := ,
test-sanitize: $(INSTALLED)
	$(call native_tests,build/asan,address$(,)undefined)
	$(call native_tests,build/tsan,thread)

# ---- benchmarks: results in benchmarks/results/; TFRA=python of an environment with TFRA 0.8.1 -------
.PHONY: bench bench-native
VERBS := lookup embedding_bag train_step insert dlrm_fit memory threads
bench: build
	for verb in $(VERBS); do $(PY) benchmarks/$$verb.py || exit 1; done
	$(if $(TFRA),$(PY) benchmarks/tfra.py --tfra $(TFRA))
	$(PY) benchmarks/chart.py

# The stages alone, for profilers.
bench-native: $(INSTALLED)
	cmake -S . -B build/bench -G Ninja --log-level=WARNING -DSOK_BUILD_OPS=OFF -DSOK_CUDA=off \
	  -DSOK_BUILD_BENCHMARKS=ON
	ninja -C build/bench
	build/bench/stages

# ---- several ranks -------------------------------------------------------------------------------
HOROVOD := .venv/.horovod
$(HOROVOD): sok/comm/build_horovod.py $(INSTALLED)
	$(PY) sok/comm/build_horovod.py --install
	touch $@

horovod: $(HOROVOD)

test-horovod: build horovod
	$(PY) -m pytest tests/distributed

# ---- other builds, each beside links to the Python files -----------------------------------------
# $(1): build folder
define linked_package
mkdir -p $(1)/package/sok
rm -f $(1)/package/sok/*.py
ln -sfn $(filter-out %/_sok_ops.so %/_build_info.json %/__pycache__,$(wildcard $(CURDIR)/sok/*)) $(1)/package/sok/
endef

# With the kernels for every GPU; then the library must still load and work on this machine.
test-cuda-build: $(INSTALLED)
	$(call linked_package,build/cuda)
	CUDACXX=$$(tools/find_nvcc.sh $(PY) build/cuda/toolkit) && \
	  $(call native_library,build/cuda,$(PY),build/cuda/package/sok,on -DSOK_NVCC=$$CUDACXX)
	$(PY) -m pytest -o pythonpath=build/cuda/package tests/test_vectors_lookup.py

OLDEST := $(CURDIR)/.venv-oldest/bin/python
.venv-oldest/.installed: requirements-oldest.txt
	$(call environment,$(PYTHON),.venv-oldest,$<)

# From the package's folder: so that new processes find that package too.
OLDEST_TESTS := $(addprefix $(CURDIR)/tests/,oldest test_vectors_lookup.py test_vectors_optimizers.py)
test-oldest: build .venv-oldest/.installed
	$(call linked_package,build/oldest)
	$(call native_library,build/oldest,.venv-oldest/bin/python,build/oldest/package/sok,off)
	cd build/oldest/package && \
	  $(OLDEST) -m pytest -c $(CURDIR)/pyproject.toml -o pythonpath=build/oldest/package $(OLDEST_TESTS)

# ---- distribution --------------------------------------------------------------------------------
wheel: $(INSTALLED)
	rm -rf build/lib build/bdist.*
	CMAKE_ARGS="-DSOK_CUDA=$(CUDA) $(CMAKE_ARGS)" $(PY) -m pip wheel --no-deps --wheel-dir dist .
	$(PY) -m build --sdist --outdir dist

test-wheel: build
	$(PY) -m pytest -m packaging tests/test_packaging.py

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run -Werror $$(git ls-files '*.cc' '*.h' '*.cu' '*.cuh')

clean:
	rm -rf build dist .venv .venv-oldest sok.egg-info .hypothesis .pytest_cache .ruff_cache .mypy_cache \
	  sok/_sok_ops.so sok/_build_info.json
