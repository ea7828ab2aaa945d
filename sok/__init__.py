# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""SOK: embedding tables for TensorFlow that do not fit one device or have no fixed vocabulary."""

from sok import callbacks, checkpoint, comm, data, initializers, layers, optimizers
from sok.checkpoint import dump, export_static, load, load_model, save_model
from sok.comm import init, rank, size
from sok.config import FeatureConfig, TableConfig
from sok.debug import debug_sync, deterministic
from sok.layers import EmbeddingCollection
from sok.lookup import (
    all2all_dense_embedding,
    assign,
    check_out,
    erase,
    export,
    filter_variables,
    lookup_sparse,
)
from sok.optimizers import OptimizerWrapper
from sok.optimizers.wrapper import SGD
from sok.stats import stats
from sok.variables import DynamicVariable, Variable

__version__ = "0.1.0"

__all__ = [
    "SGD",
    "DynamicVariable",
    "EmbeddingCollection",
    "FeatureConfig",
    "OptimizerWrapper",
    "TableConfig",
    "Variable",
    "all2all_dense_embedding",
    "assign",
    "callbacks",
    "check_out",
    "checkpoint",
    "comm",
    "data",
    "debug_sync",
    "deterministic",
    "dump",
    "erase",
    "export",
    "export_static",
    "filter_variables",
    "init",
    "initializers",
    "layers",
    "load",
    "load_model",
    "lookup_sparse",
    "optimizers",
    "rank",
    "save_model",
    "size",
    "stats",
]
