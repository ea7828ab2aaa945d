# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""What travels, and in which order: bytes, and many steps with ranks that come late."""

import time

import keras
import model
import numpy as np
import pytest
import tensorflow as tf

import sok
from sok.stages.route import kept_here

EXCHANGES = ("exchange_counts", "exchange_ids", "exchange_rows", "exchange_gradients")


def traffic(ids, dtype, mode):
    """What one training step of three features over two tables has sent, and the unique remote ids."""
    c = sok.init()
    tables = [
        sok.DynamicVariable(6, dtype=dtype, mode=mode),
        sok.Variable(shape=(1000, 3), dtype=dtype, mode=mode),
    ]
    mine = [model.ragged(bags, tf.int64) for bags in ids[c.rank]]
    before = sok.stats()
    with tf.GradientTape() as tape:
        outputs = sok.lookup_sparse([tables[0], tables[1], tables[0]], mine, combiners="mean")
        loss = tf.add_n([tf.reduce_sum(tf.cast(x, tf.float32)) for x in outputs])
    gradients = tape.gradient(loss, tables)
    sok.OptimizerWrapper(keras.optimizers.SGD(0.1)).apply_gradients(zip(gradients, tables))
    after = sok.stats()
    sent = {}
    for stage in EXCHANGES:
        old = before.get(stage, dict.fromkeys(after[stage], 0))
        sent[stage] = {name: after[stage][name] - old[name] for name in after[stage]}
    remote = []
    for table, features in zip(tables, ([mine[0], mine[2]], [mine[1]])):
        unique = np.unique(np.concatenate([f.values.numpy() for f in features]))
        remote.append(len(unique) - len(kept_here(table, tf.constant(unique))[0]))
    return sent, remote


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("mode", ["distributed", "localized:1"])
def test_only_unique_remote_ids_and_rows_travel(ranks, mode, dtype):
    rng = np.random.default_rng(0)
    sizes = [64, 0, 40]
    ids = [
        [[rng.integers(0, 300, n).tolist() for n in rng.integers(0, 9, size)] for _ in range(3)]
        for size in sizes
    ]
    results = ranks.run(traffic, ids, dtype, mode)
    remote = np.sum([remote for _, remote in results], 0)
    assert remote.sum() > 100
    row = tf.as_dtype(dtype).size
    total = {
        stage: sum(sent[stage]["sent_bytes"] for sent, _ in results) for stage in EXCHANGES
    }
    forward = total["exchange_ids"] + total["exchange_rows"]
    assert forward <= (remote * (8 + row * np.array([6, 3]))).sum() * 1.05
    # Gradients of 16-bit rows travel as float32.
    assert total["exchange_gradients"] <= (remote * 4 * np.array([6, 3])).sum() * 1.05
    # And what is needed does travel.
    assert total["exchange_ids"] == remote.sum() * 8
    for sent, _ in results:
        # One exchange of ids and one of rows, whatever the number of features and tables.
        assert [sent[stage]["calls"] for stage in EXCHANGES] == [1] * 4
        assert all(sent[stage]["seconds"] > 0 for stage in EXCHANGES)


def test_every_stage_is_counted(ranks):
    ids = [[[[1, 2]], [[3]], [[4]]]] * 3
    ranks.run(traffic, ids, "float32", "distributed")
    for stages in ranks.run(stages_of):
        for stage in ("dedupe", "route", "lookup", "combine", "combine_gradients", "merge_update"):
            assert stages[stage]["calls"] > 0
            assert stages[stage]["seconds"] > 0


def stages_of():
    return sok.stats()


def two_lookups(steps, on_ranks, slow=None):
    """Steps with two lookups that do not depend on each other, of random batches; the rows afterwards."""
    c = sok.init()
    tables = [
        sok.DynamicVariable(3, "normal", seed=1),
        sok.Variable(shape=(50, 2), initializer="normal", seed=2, mode="localized:0"),
    ]
    wrapped = sok.OptimizerWrapper(keras.optimizers.SGD(0.1))
    ranks = 2

    @tf.function(reduce_retracing=True)
    def step(parts):
        with tf.GradientTape() as tape:
            losses = []
            for first, second in parts:
                a = sok.lookup_sparse(tables[0], first, combiners="sum")
                b = sok.lookup_sparse(tables[1], second, combiners="mean")
                losses += [tf.reduce_sum(tf.sin(a)), tf.reduce_sum(tf.cos(b))]
            loss = tf.add_n(losses) / len(parts)
        wrapped.apply_gradients(zip(tape.gradient(loss, tables), tables))

    for number in range(steps):
        parts = []
        for rank in range(ranks):
            rng = np.random.default_rng([number, rank])
            # Every fourth batch is empty, on a rank of its own.
            size = 0 if rng.random() < 0.25 else rng.integers(1, 6)
            parts.append([tf.constant(rng.integers(0, 50, (size, 3))) for _ in range(2)])
        if c.rank == slow:
            time.sleep(np.random.default_rng(number).exponential(0.01))
        step([parts[c.rank]] if on_ranks else parts)
    return model.export_all(tables)


def test_200_steps_with_delays(ranks_of):
    results = ranks_of(2).run(two_lookups, 200, True, slow=1)
    placed = [model.Table("hash"), model.Table("static", mode="localized:0")]
    for got, want in zip(model.merge_exports(results, placed), two_lookups(200, False)):
        assert set(got) == set(want)
        for id_, row in want.items():
            np.testing.assert_allclose(got[id_], row, rtol=1e-4, atol=1e-5)
