# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""What tests share: devices, seeds, tables with known rows, and inputs of every kind."""

import importlib.util
import os

# Before TensorFlow is imported: its start-up messages would hide pytest's.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import hypothesis
import keras
import numpy as np
import pytest
import tensorflow as tf
from world import ON_GPU, SEED

import sok

# Deadlines would be timing assertions. Failing examples can be replayed from the printed blob.
hypothesis.settings.register_profile(
    "sok", deadline=None, print_blob=True, derandomize="SOK_TEST_SEED" not in os.environ
)
hypothesis.settings.load_profile("sok")

# Folders of tests that need what not every machine has; each has its own target in the Makefile.
collect_ignore = [
    folder
    for folder, is_possible in {
        "gpu": tf.config.list_physical_devices("GPU"),
        "distributed": importlib.util.find_spec("horovod"),
        "oldest": importlib.util.find_spec("tensorflow_io"),
    }.items()
    if not is_possible
]


@pytest.fixture(autouse=True)
def _fresh_names_and_seeds():
    keras.utils.set_random_seed(1)
    keras.utils.clear_session(free_memory=False)
    yield
    keras.config.set_dtype_policy("float32")


@pytest.fixture(autouse=True)
def _everything_on_the_device(record_property):
    """On a GPU: nothing may fall back to the CPU, neither TensorFlow's placement nor one of our ops."""
    if not ON_GPU:
        yield
        return
    tf.config.set_soft_device_placement(False)
    # Tests of errors expect them from the op at fault.
    sok.debug_sync(True)
    before = sok.stats()
    yield
    kernels = 0
    for stage, counts in sok.stats().items():
        earlier = before.get(stage, dict.fromkeys(counts, 0))
        done = {key: counts[key] - earlier[key] for key in ("calls", "gpu_calls", "gpu_kernels")}
        assert done["calls"] == done["gpu_calls"], f"{stage} ran on the CPU: {done}"
        kernels += done["gpu_kernels"]
    record_property("kernels", kernels)


@pytest.fixture
def rng():
    return np.random.default_rng([7, SEED] if SEED else 7)


@pytest.fixture
def deterministic():
    """Additions in one order, so that every run gives the same bits."""
    sok.deterministic(True)
    yield
    sok.deterministic(False)


@pytest.fixture
def table():
    return sok.DynamicVariable(2, initializer="ones", name="items")


@pytest.fixture(params=["eager", "graph"])
def run(request):
    """Calls a function as it is, or compiled."""
    if request.param == "eager":
        return lambda function, *args: function(*args)
    return lambda function, *args: tf.function(function)(*args)
