# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
#
#   make demo    builds the library and trains a recommender on MovieLens-100K
#   make test    builds it and runs the tests
#
# Needs Python 3.10 to 3.13, g++ and make. Everything else goes into .venv and build/, and a second
# run installs and builds nothing. PYTHON=python3.12 chooses the interpreter, CUDA=off leaves the
# CUDA kernels out where nvcc is found.
PYTHON ?= python3
CUDA ?= auto
VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
export PATH := $(CURDIR)/$(BIN):$(PATH)

.DEFAULT_GOAL := build
.NOTPARALLEL:
.PHONY: build demo test test-quick test-native test-sanitize lint clean

# ---- the environment: a stamp says that it holds what the file lists -----------------------------
INSTALLED := $(VENV)/.installed
$(INSTALLED): requirements-dev.txt
	tools/make_venv.sh $(PYTHON) $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	touch $@

# ---- the library, in place in sok/ ---------------------------------------------------------------
# Configured each time, which takes a second: CUDA= and another TensorFlow then count.
build: $(INSTALLED)
	cmake -S . -B build/release -G Ninja --log-level=WARNING -DSOK_CUDA=$(CUDA) \
	  -DPython3_EXECUTABLE=$(CURDIR)/$(PY) -DSOK_OUTPUT_DIR=$(CURDIR)/sok
	ninja -C build/release

demo: build
	$(PY) -m sok.models.movielens_demo

# ---- tests ---------------------------------------------------------------------------------------
test: build test-native
	$(PY) -m pytest -m "not packaging" --ignore=tests/distributed

test-quick: build
	$(PY) -m pytest -m "not packaging and not slow" --ignore=tests/distributed

# Without TensorFlow: the core and the CPU loops. $(1): build folder, $(2): sanitizers.
define native_tests
cmake -S . -B $(1) -G Ninja --log-level=WARNING -DSOK_BUILD_OPS=OFF -DSOK_BUILD_NATIVE_TESTS=ON -DSOK_CUDA=off \
  -DSOK_SANITIZE=$(2)
ninja -C $(1)
ctest --test-dir $(1) --output-on-failure
endef

test-native: $(INSTALLED)
	$(call native_tests,build/native,)

test-sanitize: $(INSTALLED)
	$(call native_tests,build/asan,address$(,)undefined)
	$(call native_tests,build/tsan,thread)
, := ,

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/mypy

clean:
	rm -rf build $(VENV) sok/_sok_ops.so sok/_build_info.json
