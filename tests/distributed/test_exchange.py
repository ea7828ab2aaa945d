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

STAGES = ("exchange_counts", "exchange_ids", "exchange_rows", "exchange_gradients")
OF_WEIGHTS = "exchange_weight_gradients"
DIMENSIONS = (24, 12)
IDS = 1000  # all below
FEATURE_TABLES = (0, 1, 0)


def traffic(batches, dtype="float32", mode=None, exchange="auto", weighted=False):
    """What one training step of three features over two tables has sent, and who keeps which ids."""
    c = sok.init()
    tables = [
        sok.DynamicVariable(DIMENSIONS[0], dtype=dtype, mode=mode),
        sok.Variable(shape=(IDS, DIMENSIONS[1]), dtype=dtype, mode=mode),
    ]
    mine = [model.ragged(bags, tf.int64) for bags in batches[c.rank]]
    weights = [ids.with_values(tf.ones_like(ids.values, tf.float32)) for ids in mine] if weighted else None
    before = sok.stats()
    with tf.GradientTape() as tape:
        if weighted:
            tape.watch([w.values for w in weights])
        outputs = sok.lookup_sparse(
            [tables[t] for t in FEATURE_TABLES], mine, weights, combiners="mean", exchange=exchange
        )
        loss = tf.add_n([tf.reduce_sum(tf.cast(x, tf.float32)) for x in outputs])
    sources = [*tables, *([w.values for w in weights] if weighted else [])]
    gradients = tape.gradient(loss, sources)[:2]
    sok.OptimizerWrapper(keras.optimizers.SGD(0.1)).apply_gradients(zip(gradients, tables))
    after = sok.stats()
    sent = {}
    for stage in (*STAGES, OF_WEIGHTS):
        new = after.get(stage, {"calls": 0, "seconds": 0.0, "sent_bytes": 0, "sent_rows": 0})
        old = before.get(stage, dict.fromkeys(new, 0))
        to = np.array(new.get("sent_bytes_to", [0] * c.size)) - old.get("sent_bytes_to", 0)
        counters = {name: new[name] - old[name] for name in ("calls", "seconds", "sent_bytes", "sent_rows")}
        sent[stage] = {**counters, "sent_bytes_to": to}
    ids = tf.range(IDS, dtype=tf.int64)
    kept = [kept_here(table, ids, ids)[1].numpy() for table in tables]
    return sent, kept


def expected_bytes(batches, owners, exchange, row_bytes, weighted):
    """Bytes from each rank to each other, [sender, receiver], by stage; owners[table][id] is a rank."""
    size = len(batches)
    sums = 4 * np.array(DIMENSIONS)
    rows = row_bytes * np.array(DIMENSIONS)
    unique = np.zeros((size, size, 2), int)  # [asking rank, owner, table]
    ids, parts = unique.copy(), unique.copy()
    bags = np.zeros((size, 2), int)
    for rank, features in enumerate(batches):
        distinct = [set(), set()]
        for table, feature in zip(FEATURE_TABLES, features):
            for bag in feature:
                where = owners[table][np.array(bag, int)]
                ids[rank, :, table] += np.bincount(where, minlength=size)
                parts[rank, np.unique(where), table] += 1
                distinct[table] |= set(bag)
            bags[rank, table] += len(feature)
        for table in range(2):
            unique[rank, :, table] += np.bincount(
                owners[table][np.array(sorted(distinct[table]), int)], minlength=size
            )
    weights = (ids if weighted and exchange != "rows" else 0 * ids).sum(2)
    result = {OF_WEIGHTS: weights.T * 4}
    if exchange == "rows":
        result["exchange_ids"] = unique.sum(2) * 8
        result["exchange_rows"] = (unique @ rows).T
        result["exchange_gradients"] = unique @ sums
    elif exchange == "partials":
        result["exchange_ids"] = ((ids + parts).sum(2) + weights) * 8
        result["exchange_rows"] = (parts @ sums).T
        result["exchange_gradients"] = parts @ sums
    else:
        result["exchange_ids"] = (ids.sum(2) + bags.sum(1)[:, np.newaxis] + weights) * 8
        of_rank = bags @ sums
        result["exchange_rows"] = np.full((size, size), of_rank.max())
        result["exchange_gradients"] = np.tile(of_rank[:, np.newaxis], (1, size))
    for matrix in result.values():
        np.fill_diagonal(matrix, 0)
    return result


def owners_of(results):
    owners = np.zeros((2, IDS), int)
    for rank, (_, kept) in enumerate(results):
        for table in range(2):
            owners[table][kept[table]] = rank
    return owners


def draw(sizes, ids, longest, seed=0):
    rng = np.random.default_rng(seed)
    return [
        [[rng.integers(0, ids, n).tolist() for n in rng.integers(0, longest, size)] for _ in FEATURE_TABLES]
        for size in sizes
    ]


def check_bytes(results, want):
    for stage, matrix in want.items():
        got = np.stack([sent[stage]["sent_bytes_to"] for sent, _ in results])
        np.testing.assert_array_equal(got, matrix, err_msg=stage)
        assert [sent[stage]["sent_bytes"] for sent, _ in results] == matrix.sum(1).tolist()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("mode", ["distributed", "localized:1"])
def test_only_unique_remote_ids_and_rows_travel(ranks, mode, dtype):
    batches = draw([64, 0, 40][: ranks.size], 300, 9)
    results = ranks.run(traffic, batches, dtype, mode)
    row = tf.as_dtype(dtype).size
    owners = owners_of(results)
    want = expected_bytes(batches, owners, "rows", row, False)
    # At most this, where the choice is free; to the byte where it is not.
    total = {stage: sum(sent[stage]["sent_bytes"] for sent, _ in results) for stage in STAGES}
    assert total["exchange_ids"] > 1000
    forward = want["exchange_ids"].sum() + want["exchange_rows"].sum()
    assert total["exchange_ids"] + total["exchange_rows"] <= forward
    # Gradients of 16-bit rows travel as float32.
    assert total["exchange_gradients"] <= want["exchange_gradients"].sum()
    results = ranks.run(traffic, batches, dtype, mode, "rows")
    check_bytes(results, want)
    for sent, _ in results:
        # One exchange of ids and one of rows, whatever the number of features and tables.
        assert [sent[stage]["calls"] for stage in STAGES] == [1] * 4
        assert all(sent[stage]["seconds"] > 0 for stage in STAGES)


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("exchange", ["rows", "partials", "reduce_scatter"])
def test_what_each_way_sends_to_each_rank(ranks, exchange, weighted):
    batches = draw([20, 0, 33][: ranks.size], 100, 12)
    results = ranks.run(traffic, batches, "float32", None, exchange, weighted)
    check_bytes(results, expected_bytes(batches, owners_of(results), exchange, 4, weighted))
    columns = 2 * (1 if exchange == "rows" else 2) + 5
    for rank, (sent, _) in enumerate(results):
        assert [sent[stage]["calls"] for stage in STAGES] == [1] * 4
        counts = np.full(ranks.size, 8 * columns)
        counts[rank] = 0
        np.testing.assert_array_equal(sent["exchange_counts"]["sent_bytes_to"], counts)


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_auto_takes_what_moves_less(ranks, dtype, weighted):
    """Long bags of ids that hardly repeat, few ids that repeat often, and ranks that differ."""
    long, repeated = ([30, 10, 20], IDS, 60), ([30, 10, 20], 8, 60)
    cases = [draw(*long), draw(*repeated), [draw(*long)[0], *draw(*repeated)[1:]]]
    taken = []
    for batches in [case[: ranks.size] for case in cases]:
        results = ranks.run(traffic, batches, dtype, None, "auto", weighted)
        row, owners = tf.as_dtype(dtype).size, owners_of(results)
        want = {way: expected_bytes(batches, owners, way, row, weighted) for way in ("rows", "partials")}
        forward, backward = (
            {way: sum(matrices[stage].sum() for stage in stages) for way, matrices in want.items()}
            for stages in (
                ("exchange_ids", "exchange_rows"),
                ("exchange_gradients", OF_WEIGHTS),
            )
        )
        less = forward["partials"] < forward["rows"] and backward["partials"] < backward["rows"]
        taken.append("partials" if less else "rows")
        check_bytes(results, want[taken[-1]])
    assert taken[:2] == ["partials", "rows"]


def test_every_stage_is_counted(ranks):
    ids = [[[[1, 2]], [[3]], [[4]]]] * 3
    ranks.run(traffic, ids, "float32", "distributed", "rows")
    ranks.run(traffic, ids, "float32", "distributed", "partials")
    for stages in ranks.run(stages_of):
        for stage in ("dedupe", "route", "route_bags", "lookup", "combine", "combine_gradients", "merge_update"):
            assert stages[stage]["calls"] > 0
            assert stages[stage]["seconds"] > 0


def stages_of():
    return sok.stats()


def two_lookups(steps, ranks, on_ranks, slow=None):
    """Steps with two lookups that do not depend on each other, of random batches; the rows afterwards."""
    c = sok.init()
    tables = [
        sok.DynamicVariable(3, "normal", seed=1),
        sok.Variable(shape=(50, 2), initializer="normal", seed=2, mode="localized:0" if on_ranks else None),
    ]
    wrapped = sok.OptimizerWrapper(keras.optimizers.SGD(0.1))

    @tf.function(reduce_retracing=True)
    def step(parts):
        with tf.GradientTape() as tape:
            losses = []
            for first, second in parts:
                a = sok.lookup_sparse(tables[0], first, combiners="sum")
                b = sok.lookup_sparse(tables[1], second, combiners="mean", exchange="partials")
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


@pytest.mark.parametrize(("size", "steps"), [(2, 200), (3, 50)])
def test_many_steps_with_delays(ranks_of, size, steps):
    results = ranks_of(size).run(two_lookups, steps, size, True, slow=1)
    placed = [model.Table("hash"), model.Table("static", mode="localized:0")]
    for got, want in zip(model.merge_exports(results, placed), two_lookups(steps, size, False)):
        assert set(got) == set(want)
        for id_, row in want.items():
            np.testing.assert_allclose(got[id_], row, rtol=1e-4, atol=1e-5)
