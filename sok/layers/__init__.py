# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Keras 3 layers."""

from sok.layers.embedding import DistributedEmbedding

__all__ = ["DistributedEmbedding"]
