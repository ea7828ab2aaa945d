# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Keras 3 layers."""

from sok.layers.collection import EmbeddingCollection
from sok.layers.embedding import All2AllDenseEmbedding, DistributedEmbedding, LocalizedEmbedding
from sok.layers.interaction import DotInteraction
from sok.layers.mixin import TableMixin

__all__ = [
    "All2AllDenseEmbedding",
    "DistributedEmbedding",
    "DotInteraction",
    "EmbeddingCollection",
    "LocalizedEmbedding",
    "TableMixin",
]
