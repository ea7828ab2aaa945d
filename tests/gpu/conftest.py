# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""These tests compare a GPU with the CPU, so both may work."""

import pytest
import tensorflow as tf

import sok


@pytest.fixture(autouse=True)
def _everything_on_the_device(record_property):
    tf.config.set_soft_device_placement(False)
    before = sum(stage["gpu_kernels"] for stage in sok.stats().values())
    yield
    record_property("kernels", sum(stage["gpu_kernels"] for stage in sok.stats().values()) - before)
