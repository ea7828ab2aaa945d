# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""A small model that runs on any number of ranks, with the same mathematics on one.

Each function here runs in the processes of `launch.Ranks`, and in the test's own process as one rank.
"""

import dataclasses

import keras
import numpy as np
import tensorflow as tf

import sok

OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.5),
    "momentum": lambda: keras.optimizers.SGD(0.2, momentum=0.9, nesterov=True),
    "adagrad": lambda: keras.optimizers.Adagrad(0.3),
    "adam": lambda: keras.optimizers.Adam(0.05),
    "clipvalue": lambda: keras.optimizers.SGD(1.0, clipvalue=0.01),
    "clipnorm": lambda: keras.optimizers.SGD(1.0, clipnorm=0.05),
    "global_clipnorm": lambda: keras.optimizers.SGD(1.0, global_clipnorm=0.05),
}


@dataclasses.dataclass(frozen=True)
class Table:
    """rows: of a static table; None: a hash table."""

    name: str
    dimension: int = 4
    rows: int | None = None
    mode: str | None = None
    dtype: str = "float32"
    combiner: str | None = "mean"
    weighted: bool = False

    def create(self, seed, on_ranks=True):
        common = {
            "initializer": "normal",
            "seed": seed,
            "name": self.name,
            "mode": self.mode if on_ranks else None,
            "dtype": self.dtype,
        }
        if self.rows is None:
            return sok.DynamicVariable(self.dimension, **common)
        return sok.Variable(shape=(self.rows, self.dimension), **common)


def batches(tables, sizes, seed):
    """For each rank a batch: for each table a list of bags of ids, and of weights."""
    rng = np.random.default_rng(seed)
    result = []
    for size in sizes:
        ids, weights = [], []
        for table in tables:
            high = table.rows or 30
            lengths = rng.integers(0, 5, size)
            # Few different ids: ranks share many of them.
            ids.append([rng.integers(0, high, n).tolist() for n in lengths])
            weights.append([rng.uniform(0.5, 2, n).round(3).tolist() for n in lengths])
        result.append((ids, weights))
    return result


def ragged(bags, dtype):
    return tf.RaggedTensor.from_row_lengths(
        tf.constant([x for bag in bags for x in bag], dtype), [len(bag) for bag in bags]
    )


def export_all(variables):
    """Rows by id of each table, those that this process keeps."""
    result = []
    for variable in variables:
        ids, values = sok.export(variable)
        result.append(dict(zip(ids.numpy().tolist(), values.numpy().astype(np.float64))))
    return result


def merge_exports(per_rank, tables):
    """Tables of all ranks as one: no id may live on two ranks, unless it is replicated."""
    whole = []
    for t, table in enumerate(tables):
        rows = {}
        for exports in per_rank:
            for id_, row in exports[t].items():
                if id_ in rows:
                    assert table.mode == "data_parallel", f"{table.name}: id {id_} is on two ranks"
                    np.testing.assert_array_equal(row, rows[id_])
                rows[id_] = row
        whole.append(rows)
    return whole


def train(tables, steps, optimizer, graph, on_ranks, exchange="auto"):
    """Trains; returns outputs of the last step, losses, the table rows here, and dense weights.

    Args:
        tables: what to create.
        steps: for each step the batch of each rank.
        optimizer: a key of OPTIMIZERS.
        graph: whether the step is a tf.function.
        on_ranks: whether this process is one of several ranks. Else it computes the loss of every
            rank's batch, and their mean.
        exchange: of the lookup.
    """
    communicator = sok.init()
    variables = [table.create(seed, on_ranks) for seed, table in enumerate(tables)]
    width = sum(table.dimension for table in tables)
    dense = tf.Variable(np.linspace(-1, 1, width, dtype=np.float32)[:, None], name="dense")
    wrapped = sok.OptimizerWrapper(OPTIMIZERS[optimizer]())
    combiners = [table.combiner for table in tables]

    def loss_of(ids, weights):
        weights = [w if t.weighted else None for w, t in zip(weights, tables)]
        outputs = sok.lookup_sparse(variables, ids, weights, combiners=combiners, exchange=exchange)
        joined = tf.concat([tf.cast(x, tf.float32) for x in outputs], 1)
        error = tf.square(tf.tanh(joined @ dense) - 0.3)
        # The mean of an empty batch would be 0 / 0.
        size = tf.maximum(tf.shape(joined)[0], 1)
        return tf.reduce_sum(error) / tf.cast(size, tf.float32), outputs

    def step(parts):
        with tf.GradientTape() as tape:
            losses, outputs = zip(*(loss_of(*part) for part in parts))
            loss = tf.add_n(list(losses)) / len(parts)
        trained = [*variables, dense]
        wrapped.apply_gradients(zip(tape.gradient(loss, trained), trained))
        return outputs, losses

    if graph:
        step = tf.function(step, reduce_retracing=True)
    losses, outputs = [], []
    for batch in steps:
        parts = [batch[communicator.rank]] if on_ranks else batch
        parts = [
            ([ragged(x, tf.int64) for x in ids], [ragged(x, tf.float32) for x in weights])
            for ids, weights in parts
        ]
        outputs, loss = step(parts)
        losses.append([float(x) for x in loss])
    outputs = [[x.numpy() for x in part] for part in outputs]
    return outputs, losses, export_all(variables), dense.numpy()
