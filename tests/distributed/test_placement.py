# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Where rows live, and that nothing else than where depends on it."""

import model
import numpy as np
import pytest
import reference
import tensorflow as tf

import sok
from sok import checks
from sok.placement import Placement

MODES = ["distributed", "localized:1", "data_parallel"]


def rows_kept(mode, rows):
    c = sok.init()
    table = sok.Variable(shape=(rows, 3), initializer="normal", seed=5, mode=mode)
    ids, values = sok.export(table)
    assert table.size == [rows, 3]
    assert sok.stats(table)[table.name]["rows"] == len(ids)
    return c.rank, dict(zip(ids.numpy().tolist(), values.numpy()))


@pytest.mark.parametrize("rows", [0, 1, 2, 11])
@pytest.mark.parametrize("mode", MODES)
def test_static_rows(ranks, mode, rows):
    kept = dict(ranks.run(rows_kept, mode, rows))
    want = {
        "distributed": {r: set(range(r, rows, ranks.size)) for r in kept},
        "localized:1": {r: set(range(rows)) if r == 1 else set() for r in kept},
        "data_parallel": {r: set(range(rows)) for r in kept},
    }[mode]
    assert {rank: set(table) for rank, table in kept.items()} == want
    # Each row starts as it does on one rank.
    alone = rows_kept("distributed", rows)[1]
    for table in kept.values():
        for id_, row in table.items():
            np.testing.assert_array_equal(row, alone[id_])


def values_kept(mode):
    sok.init()
    given = np.arange(14, dtype=np.float32).reshape(7, 2)
    tables = [sok.Variable(given, mode=mode), sok.Variable(lambda: given, mode=mode)]
    tables.append(sok.Variable(shape=(7, 2), initializer="zeros", mode=mode))
    tables[2].assign(given)
    copy = sok.Variable(shape=(7, 2), initializer="zeros", mode=mode)
    copy.assign(tables[0].numpy())
    looked_up = sok.lookup_sparse(copy, tf.range(7), combiners="sum").numpy()
    return looked_up, [model.export_all([table])[0] for table in [*tables, copy]], tables[0].numpy().ids


@pytest.mark.parametrize("mode", MODES)
def test_initial_values_and_assign(ranks, mode):
    given = np.arange(14).reshape(7, 2)
    results = ranks.run(values_kept, mode)
    for number in range(4):
        (rows,) = model.merge_exports([[r[1][number]] for r in results], [model.Table("t", mode=mode)])
        np.testing.assert_array_equal([rows[i] for i in range(7)], given)
    for looked_up, exports, ids in results:
        np.testing.assert_array_equal(looked_up, given)
        assert set(ids) == set(exports[0])


def hash_table(mode, ids, seed):
    c = sok.init()
    table = sok.DynamicVariable(3, "normal", mode=mode, seed=seed, key_type=ids.dtype)
    mine = ids if c.rank != 1 else ids[:0]
    first = sok.lookup_sparse(table, tf.constant(mine), combiners="sum").numpy()
    # Other ranks see the rows that rank 0 has inserted; nobody inserts in evaluation.
    unknown = np.asarray([77, 78], ids.dtype)
    asked = tf.constant(np.concatenate([ids[::-1], unknown]))
    again = sok.lookup_sparse(table, asked, combiners="sum", training=False).numpy()
    kept = sok.export(table)[0].numpy()
    erased = sok.erase(table, tf.constant(ids[:4]))
    sok.assign(table, tf.constant(ids[2:6]), np.full((len(ids[2:6]), 3), 9.0))
    left = dict(zip(sok.export(table)[0].numpy().tolist(), sok.export(table)[1].numpy()))
    return first, again, kept, erased, left, table.attributes.seed


@pytest.mark.parametrize("key_type", reference.KEY_DTYPES)
@pytest.mark.parametrize("mode", ["distributed", "localized:1"])
def test_every_key_on_its_rank(ranks, mode, key_type):
    ids = np.asarray(reference.SENTINELS[key_type], key_type)
    results = ranks.run(hash_table, mode, ids, 3)
    first, again, kept, _, _, _ = hash_table("distributed", ids, 3)
    for rank, result in enumerate(results):
        np.testing.assert_array_equal(result[0], first[: 0 if rank == 1 else None])
        np.testing.assert_array_equal(result[1], again)
    owners = np.concatenate([result[2] for result in results])
    assert sorted(owners.tolist()) == sorted(kept.tolist()) == sorted(ids.tolist())
    if mode == "localized:1":
        assert [len(result[2]) for result in results].count(0) == ranks.size - 1
    assert sum(result[3] for result in results) == 4
    left = {id_: row for result in results for id_, row in result[4].items()}
    assert set(left) == set(ids[2:].tolist())
    for id_ in ids[2:6].tolist():
        np.testing.assert_array_equal(left[id_], np.full(3, 9.0))


def test_drawn_seeds_agree(ranks):
    ids = np.arange(5)
    results = ranks.run(hash_table, "distributed", ids, None)
    assert len({result[5] for result in results}) == 1
    np.testing.assert_array_equal(results[0][1], results[1][1])


def balanced(sizes):
    sok.init()
    made = [sok.Variable(shape=(rows, 2), mode="localized") for rows in sizes]
    made.append(sok.DynamicVariable(2, mode="localized", capacity=1000))
    return [table.placement.rank for table in made]


def test_localized_tables_go_where_the_fewest_bytes_are(ranks_of):
    # A fresh job: the balance counts all tables that a process has made.
    import launch

    job = launch.Ranks(2)
    try:
        placed = job.run(balanced, [100, 10, 10, 200, 20])
    finally:
        job.close()
    #                    0    1   1   1    0 (100 < 220)   0 (120 < 220)
    assert placed == [[0, 1, 1, 1, 0, 0]] * 2


def refused():
    c = sok.init()
    found = []
    for make in (
        lambda: sok.Variable(shape=(4, 2), mode=f"localized:{c.size}"),
        lambda: sok.DynamicVariable(2, mode=("localized", c.size + 1)),
        lambda: sok.DynamicVariable(2, mode="data_parallel"),
        lambda: sok.layers.LocalizedEmbedding(2, rank=c.size),
        lambda: sok.DynamicVariable(2, mode=("localized", -1)),
    ):
        try:
            make()
        except ValueError as error:
            found.append(str(error))
    table = sok.DynamicVariable(2)
    table.placement = Placement()
    try:
        sok.lookup_sparse(table, tf.constant([1]))
    except ValueError as error:
        found.append(str(error))
    return found


def test_bad_placements(ranks):
    n = ranks.size
    for found in ranks.run(refused):
        rank, pair, replicated, layer, negative, early = found
        assert f"mode 'localized:{n}' names rank {n}, but there are {n} ranks, from 0" in rank
        assert f"names rank {n + 1}, but there are {n} ranks" in pair
        assert 'mode "data_parallel" is for static tables' in replicated
        assert f"names rank {n}, but there are {n} ranks" in layer
        assert "mode must be" in negative
        assert f"was created for 1 ranks, but there are {n}: call sok.init() before" in early


def out_of_range(policy, mode, exchange):
    c = sok.init()
    table = sok.Variable(
        np.arange(1.0, 8.0, dtype=np.float32)[:, None], out_of_range=policy, mode=mode
    )
    ids = [[0, 1], [3, 7 if c.rank == 1 else 6], [-1 if c.rank == 1 else 2, 4]]
    try:
        with tf.GradientTape() as tape:
            out = sok.lookup_sparse(table, tf.constant(ids), combiners="sum", exchange=exchange)
        gradient = tape.gradient(out, [table])[0]
        return out.numpy()[:, 0].tolist(), float(tf.reduce_sum(gradient.values))
    except tf.errors.InvalidArgumentError as error:
        # The job goes on: all ranks have left the call together.
        good = sok.lookup_sparse(table, tf.constant([[2]]), combiners="sum").numpy()
        assert good.tolist() == [[3.0]]
        return str(error)


@pytest.mark.parametrize("exchange", checks.EXCHANGES)
@pytest.mark.parametrize("mode", ["distributed", "localized:1"])
def test_out_of_range(ranks, mode, exchange):
    for text in ranks.run(out_of_range, "error", mode, exchange):
        assert "id 7 at position 3 of rank 1 is out of range: the table has 7 rows" in text, text
    zero = ranks.run(out_of_range, "zero", mode, exchange)
    assert [out for out, _ in zero] == [[3, 11, 8], [3, 4, 5], [3, 11, 8]][: ranks.size]
    # Two ids of rank 1 have no gradient.
    assert sum(gradient for _, gradient in zero) == 6 * ranks.size - 2
    clip = ranks.run(out_of_range, "clip", mode, exchange)
    assert [out for out, _ in clip] == [[3, 11, 8], [3, 11, 6], [3, 11, 8]][: ranks.size]
    assert sum(gradient for _, gradient in clip) == 6 * ranks.size


def many_kinds(sizes, on_ranks, dtype, exchange):
    """Lookups of every kind, of this rank's batch (on one rank, of every batch), and all gradients."""
    c = sok.init()
    hash_ = sok.DynamicVariable(5, "normal", seed=1, dtype=dtype, default="zeros")
    static = sok.Variable(
        shape=(40, 3), initializer="normal", seed=2, dtype=dtype, mode="localized:1" if on_ranks else None
    )
    replica = sok.Variable(
        shape=(20, 2), initializer="normal", seed=3, mode="data_parallel" if on_ranks else None
    )
    # All ids are known first, so that evaluation sees the same rows.
    sok.lookup_sparse(hash_, tf.range(40))

    def one(rank):
        rng = np.random.default_rng(rank)
        size = sizes[rank]
        ids = [rng.integers(0, 20, n).tolist() for n in rng.integers(0, 6, size)]
        ids = model.ragged(ids, tf.int64)
        weights = ids.with_values(tf.constant(rng.normal(size=len(ids.values)), tf.float32))
        dense = tf.constant(rng.integers(0, 20, (size, 3)))
        dense_weights = tf.constant(rng.normal(size=(size, 3)), tf.float32)
        params = [hash_, static, replica, hash_, static, hash_, replica]
        with tf.GradientTape() as tape:
            tape.watch([weights.values, dense_weights])
            outputs = sok.lookup_sparse(
                params,
                [ids, ids, ids, dense, dense.numpy()[:, 0], ids.to_sparse(), dense],
                [weights, weights, None, dense_weights, None, weights.to_sparse(), dense_weights],
                ["mean", "sqrtn", "mean", "sqrtn", None, "sum", None],
                max_norm=1.2,
                training=rank % 2 == 0 or on_ranks,
                exchange=exchange,
            )
            flat = [tf.cast(x, tf.float32) for x in outputs]
            loss = tf.add_n([tf.reduce_sum(tf.sin(x + i)) for i, x in enumerate(flat)])
        sources = [weights.values, dense_weights, hash_, static, replica]
        gradients = tape.gradient(loss, sources)
        return [x.numpy() for x in outputs], [g.numpy() for g in gradients[:2]]

    return one(c.rank) if on_ranks else [one(rank) for rank in range(len(sizes))]


@pytest.mark.parametrize("exchange", checks.EXCHANGES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_lookups_of_every_kind(ranks, dtype, exchange):
    sizes = [6, 0, 4][: ranks.size]
    close = reference.TOLERANCE[dtype]
    want = many_kinds(sizes, False, dtype, exchange)
    for (outputs, gradients), (want_outputs, want_gradients) in zip(
        ranks.run(many_kinds, sizes, True, dtype, exchange), want
    ):
        for got, expected in zip(outputs, want_outputs):
            assert got.dtype == expected.dtype
            np.testing.assert_allclose(got.astype(float), expected.astype(float), **close)
        for got, expected in zip(gradients, want_gradients):
            np.testing.assert_allclose(got, expected, **close)
