# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""What tests share: seeds, tables with known rows, and inputs of every kind."""

import keras
import numpy as np
import pytest
import tensorflow as tf


@pytest.fixture(autouse=True)
def _fresh_names_and_seeds():
    keras.utils.set_random_seed(1)
    keras.utils.clear_session(free_memory=False)
    yield
    keras.config.set_dtype_policy("float32")


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture(params=["eager", "graph"])
def run(request):
    """Calls a function as it is, or compiled."""
    if request.param == "eager":
        return lambda function, *args: function(*args)
    return lambda function, *args: tf.function(function)(*args)
