# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Recommender models over embedding tables, and the demos that train them."""

from sok.models.dlrm import DLRM, distributed_embeddings

__all__ = ["DLRM", "distributed_embeddings"]
