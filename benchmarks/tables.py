# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables and batches as TensorFlow and SOK want them."""

from collections.abc import Callable

import defaults
import measure
import numpy as np
import tensorflow as tf

import sok

VERSIONS = {"tensorflow": tf.__version__}


def values(shape: defaults.Shape) -> np.ndarray:
    """What all tables of a benchmark start with."""
    return np.random.default_rng(defaults.SEED).random((shape.rows, shape.width), np.float32) - 0.5


def static(shape: defaults.Shape) -> sok.Variable:
    return sok.Variable(shape=(shape.rows, shape.width), initializer="random", seed=1)


def hashed(shape: defaults.Shape) -> sok.DynamicVariable:
    """A hash table that has grown to hold every id."""
    table = sok.DynamicVariable(shape.width, initializer="random", seed=1)
    for ids in np.array_split(np.random.default_rng(2).permutation(shape.rows), 10):
        sok.lookup_sparse(table, tf.constant(ids), combiners="sum")
    return table


class Batches:
    """Batches of one table as constants: dense, ragged and sparse."""

    def __init__(self, distribution: str, shape: defaults.Shape):
        flat = [batch[0] for batch in measure.batches(distribution, shape)]
        self.dense = [tf.constant(ids) for ids in flat]
        splits = tf.constant(np.arange(shape.bags + 1, dtype=np.int64) * shape.hotness)
        self.ragged = [tf.RaggedTensor.from_row_splits(tf.reshape(ids, [-1]), splits) for ids in self.dense]
        # Not tf.sparse.from_dense, which leaves zeros out.
        places = tf.constant(np.stack(np.indices(flat[0].shape), -1).reshape(-1, 2))
        self.sparse = [tf.SparseTensor(places, tf.reshape(ids, [-1]), ids.shape) for ids in self.dense]

    def each(self, function, kind: str):
        """Calls a function with the repeat's batch."""
        batches = getattr(self, kind)
        return lambda number: function(batches[number % len(batches)])


def beside_tensorflow(verb: str, description: str, functions_of: Callable[..., dict], ours: dict[str, str]) -> None:
    """Measures a verb on every shape of one table, and saves it.

    functions_of: called as (shape, batches, static table, hash table), gives functions of the repeat's number by
        name; the names of TensorFlow's begin with "tf ".
    ours: of each kind of table the function whose ratio to the best of TensorFlow's counts.
    """
    shapes = [name for name, shape in defaults.SHAPES.items() if shape.tables == 1]
    chosen = measure.arguments(description, shapes=shapes, ids=defaults.DISTRIBUTIONS)
    rows = []
    for name in chosen.shapes:
        for ids in chosen.ids:
            shape = defaults.SHAPES[name]
            functions = functions_of(shape, Batches(ids, shape), static(shape), hashed(shape))
            times = measure.in_turns(functions, chosen.repeats)
            best = min(time for function, time in times.items() if function.startswith("tf "))
            ratios = {f"{kind} ratio": best / times[function] for kind, function in ours.items()}
            rows.append({"shape": name, "ids": ids, **times, **ratios})
    measure.save(verb, rows, **VERSIONS)
