# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Optimizers: the wrapper that lets a Keras optimizer train tables, and the optimizers it can wrap.

`RowWiseAdagrad` is the library's own; the others are Keras's, here for convenience.
"""

from keras.optimizers import SGD, Adadelta, Adagrad, Adam, Adamax, AdamW, Ftrl, RMSprop

# A saved model names the class inside, so it must be registered before one is made.
from sok.optimizers import keras3 as _registered  # noqa: F401
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
