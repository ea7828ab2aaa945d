# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a run of the tests is told: the device, and the seed of what is drawn at random."""

import os

# tests/gpu/run.sh runs the whole suite on a GPU.
ON_GPU = os.environ.get("SOK_TEST_DEVICE") == "gpu"
SEED = int(os.environ.get("SOK_TEST_SEED", "0"))
