# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Optimizers: the wrapper that lets a Keras optimizer train tables, and optimizers Keras lacks."""

from sok.optimizers.rules import supported
from sok.optimizers.wrapper import SGD, OptimizerWrapper

__all__ = ["SGD", "OptimizerWrapper", "supported"]
