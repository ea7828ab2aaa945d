# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Optimizers: the wrapper that lets a Keras optimizer train tables, and the optimizers it can wrap.

`RowWiseAdagrad` is the library's own; the others are Keras's, here for convenience.
"""

from keras.optimizers import SGD, Adadelta, Adagrad, Adam, Adamax, AdamW, Ftrl, RMSprop

from sok.optimizers.rowwise_adagrad import RowWiseAdagrad
from sok.optimizers.rules import supported
from sok.optimizers.wrapper import OptimizerWrapper

__all__ = [
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Ftrl",
    "OptimizerWrapper",
    "RMSprop",
    "RowWiseAdagrad",
    "supported",
]
