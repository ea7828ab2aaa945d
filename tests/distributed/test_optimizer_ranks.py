# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""An optimizer over ranks: means and sums, clipping, loss scale, data-parallel tables, equal weights."""

import keras
import model
import numpy as np
import pytest
import tensorflow as tf
from model import Table
from test_equal_to_one_rank import MIXED, compare

import sok

WITH_REPLICAS = [
    *MIXED,
    Table("everywhere", 4, rows=9, mode="data_parallel", combiner="sum"),
    Table("everywhere_too", 3, rows=5, mode="data_parallel", weighted=True),
]


@pytest.mark.parametrize("optimizer", ["momentum", "clipnorm", "clipvalue", "global_clipnorm"])
def test_as_on_one_rank(ranks, optimizer):
    compare(ranks, WITH_REPLICAS, [4, 0, 3][: ranks.size], optimizer, True, 2e-5)


def test_data_parallel_only(ranks):
    tables = [table for table in WITH_REPLICAS if table.mode == "data_parallel"]
    compare(ranks, tables, [3, 4, 0][: ranks.size], "adagrad", True, 1e-5)


def gradients_of_ones(table, ids):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(sok.lookup_sparse(table, tf.constant(ids, tf.int64), combiners="sum"))
    return tape.gradient(loss, [table])


def one_step(reduction, per_rank_ids, mode):
    c = sok.init()
    table = sok.Variable(tf.ones([8, 2]), mode=mode)
    dense = tf.Variable([1.0])
    wrapped = sok.OptimizerWrapper(
        keras.optimizers.SGD(0.25),
        sparse_reduction=reduction,
        dense_reduction="mean" if reduction == "mean" else None,
    )
    gradients = gradients_of_ones(table, per_rank_ids[c.rank])
    wrapped.apply_gradients(zip([*gradients, tf.constant([float(c.rank)])], [table, dense]))
    return model.export_all([table]), dense.numpy()


@pytest.mark.parametrize("mode", ["distributed", "localized:1", "data_parallel"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_mean_and_sum(ranks, reduction, mode):
    ids = [[[5, 5], [1, 2]], [[5, 1]], np.zeros((0, 2))][: ranks.size]
    results = ranks.run(one_step, reduction, ids, mode)
    (rows,) = model.merge_exports([rows for rows, _ in results], [Table("t", mode=mode)])
    by = ranks.size if reduction == "mean" else 1
    for id_, count in {5: 3, 1: 2, 2: 1, 0: 0}.items():
        np.testing.assert_allclose(rows[id_], np.full(2, 1 - 0.25 * count / by), rtol=1e-6)
    mean = np.arange(ranks.size).mean()
    for rank, (_, dense) in enumerate(results):
        np.testing.assert_allclose(dense, [1 - 0.25 * (mean if reduction == "mean" else rank)], rtol=1e-6)


def two_shards(norms):
    """A row on each of two ranks, with gradients of the given norms, clipped to 1 together."""
    c = sok.init()
    table = sok.Variable(tf.zeros([2, 2]))
    wrapped = sok.OptimizerWrapper(
        keras.optimizers.SGD(1.0, global_clipnorm=1.0), sparse_reduction="sum"
    )
    # Row r lives on rank r, whichever rank has its gradient.
    asked = 1 - c.rank
    with tf.GradientTape() as tape:
        row = sok.lookup_sparse(table, tf.constant([asked], tf.int64), combiners="sum")
        loss = norms[asked] * row[0, 0]
    wrapped.apply_gradients(zip(tape.gradient(loss, [table]), [table]))
    return sok.export(table)[1].numpy()


def test_global_norm_counts_every_shard_once(ranks_of):
    first, second = ranks_of(2).run(two_shards, [3.0, 4.0])
    np.testing.assert_allclose(first, [[-3 / 5, 0]], rtol=1e-6)
    np.testing.assert_allclose(second, [[-4 / 5, 0]], rtol=1e-6)


def infinite(where, steps):
    """A step whose gradient is infinite on one rank only, in a table or in a dense variable."""
    c = sok.init()
    table = sok.DynamicVariable(2, initializer="ones")
    dense = tf.Variable([1.0, 2.0])
    wrapped = sok.OptimizerWrapper(keras.optimizers.Adam(0.1), loss_scale="dynamic")
    wrapped.build([table, dense])

    @tf.function
    def step(bad):
        with tf.GradientTape() as tape:
            rows = sok.lookup_sparse(table, tf.constant([[c.rank, 7]], tf.int64))
            loss = tf.reduce_sum(rows) + tf.reduce_sum(dense)
            scaled = wrapped.scale_loss(loss)
        gradients = tape.gradient(scaled, [table, dense])
        factor = tf.where(bad, np.inf, 1.0)
        if where == "table":
            gradients[0] = tf.IndexedSlices(gradients[0].values * factor, gradients[0].indices)
        else:
            gradients[1] *= factor
        wrapped.apply_gradients(zip(gradients, [table, dense]))

    history = []
    for number in range(steps):
        step(tf.constant(number == 1 and c.rank == 1))
        rows = {id_: row.tolist() for id_, row in model.export_all([table])[0].items()}
        history.append((rows, dense.numpy().tolist(), float(wrapped.dynamic_scale)))
    return history


@pytest.mark.parametrize("where", ["table", "dense"])
def test_infinity_on_one_rank_stops_all(ranks, where):
    for history in ranks.run(infinite, where, 3):
        (rows0, dense0, scale0), (rows1, dense1, scale1), (rows2, dense2, _) = history
        assert rows1 == rows0
        assert dense1 == dense0
        assert scale1 == scale0 / 2
        assert dense2 != dense1
        assert rows2 != rows1 or not rows1


def keras_embedding():
    """Sparse gradients of a Keras Embedding stay sparse, and are averaged."""
    c = sok.init()
    table = sok.DynamicVariable(2)
    embeddings = keras.Variable(tf.ones([6, 2]))
    wrapped = sok.OptimizerWrapper(keras.optimizers.SGD(0.5))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.gather(embeddings.value, [c.rank, 5]))
        loss += tf.reduce_sum(sok.lookup_sparse(table, tf.constant([1])))
    gradients = tape.gradient(loss, [table, embeddings.value])
    assert isinstance(gradients[1], tf.IndexedSlices)
    wrapped.apply_gradients(zip(gradients, [table, embeddings]))
    return np.asarray(embeddings)


def test_sparse_gradients_of_dense_variables(ranks):
    want = np.ones((6, 2))
    want[: ranks.size] -= 0.5 / ranks.size
    want[5] -= 0.5
    for got in ranks.run(keras_embedding):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def broadcast(root):
    c = sok.init()
    rank = float(c.rank)
    variables = [
        tf.Variable([[rank, 2.0]]),
        keras.Variable([rank + 10], dtype="float32"),
        tf.Variable(c.rank, dtype=tf.int64),
        tf.Variable([c.rank == 1, True]),
        tf.Variable([rank], dtype=tf.bfloat16),
    ]
    replicated = sok.Variable(tf.fill([3, 2], rank), mode="data_parallel")
    sharded = sok.Variable(tf.fill([3, 2], 7.0 + rank))
    sok.comm.broadcast_variables([*variables, replicated, sharded], root)
    everything = [np.asarray(tf.convert_to_tensor(v)).astype(float).tolist() for v in variables]
    return everything, *(sok.export(t)[1].numpy()[:, 0].tolist() for t in (replicated, sharded))


@pytest.mark.parametrize("root", [0, 1])
def test_broadcast_variables(ranks, root):
    r = float(root)
    for rank, (values, replicated, sharded) in enumerate(ranks.run(broadcast, root)):
        assert values == [[[r, 2.0]], [r + 10], r, [r, 1.0], [r]]
        assert replicated == [r] * 3
        assert set(sharded) <= {7.0 + rank}


def test_broadcast_names_the_ranks():
    with pytest.raises(ValueError, match="root must be one of the 1 ranks, from 0; got 1"):
        sok.comm.broadcast_variables([], 1)
