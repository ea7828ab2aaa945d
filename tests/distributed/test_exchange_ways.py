# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Whatever travels, rows or sums of them, training is that of one rank."""

import keras
import model
import numpy as np
import pytest
import tensorflow as tf
from model import Table
from test_equal_to_one_rank import MIXED, compare

import sok

WEIGHTED = [Table("hash", 4, combiner="sum", weighted=True), Table("static", 3, rows=11, combiner="sqrtn")]


@pytest.mark.parametrize("exchange", ["rows", "partials", "reduce_scatter"])
def test_forced(ranks, exchange):
    tables = [*MIXED, *(Table(f"more_{t.name}", t.dimension, t.rows, None, t.dtype, t.combiner, t.weighted)
                        for t in WEIGHTED)]  # fmt: skip
    compare(ranks, tables, [5, 0, 3][: ranks.size], "adagrad", True, 1e-5, steps=4, exchange=exchange)


@pytest.mark.parametrize("exchange", ["partials", "reduce_scatter"])
def test_empty_on_all_ranks(ranks, exchange):
    compare(ranks, MIXED, [0] * ranks.size, "sgd", True, 0.0, steps=2, exchange=exchange)


def test_auto_changes_its_mind_between_steps(ranks):
    """One function, batches of which now one way and now the other moves less."""
    tables = [Table("hash", 8, combiner="mean", weighted=True), Table("static", 6, rows=400, dtype="float16")]
    rng = np.random.default_rng(4)
    data = []
    for step in range(6):
        long = step % 2 == 0
        sizes = [4, 3, 0] if step != 3 else [0, 0, 0]
        batch = []
        for size in sizes[: ranks.size]:
            ids = [
                [rng.integers(0, 400 if long else 2, 30 if long else 3).tolist() for _ in range(size)]
                for _ in tables
            ]
            batch.append((ids, [[rng.uniform(0.5, 2, len(bag)).tolist() for bag in bags] for bags in ids]))
        data.append(batch)
    results = ranks.run(model.train, tables, data, "sgd", True, True)
    outputs, _, rows, _ = model.train(tables, data, "sgd", False, False)
    for rank, result in enumerate(results):
        for got, want in zip(result[0][0], outputs[rank]):
            np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=2e-3, atol=2e-3)
    for got, want in zip(model.merge_exports([result[2] for result in results], tables), rows):
        assert set(got) == set(want)
        for id_, row in want.items():
            np.testing.assert_allclose(got[id_], row, rtol=2e-3, atol=2e-3)


def edge_cases(exchange):
    """Bags whose divisor is 0, and numbers that are not finite, stay what they are on one rank."""
    sok.init()
    table = sok.Variable([[float(i), 1.0] for i in range(1, 9)])
    ids = tf.constant([[1, 3], [1, 2], [4, 5], [6, 7]], tf.int64)
    weights = tf.constant([[1.0, -1.0], [float("nan"), 1.0], [2.0, 0.5], [0.0, 0.0]])
    result = []
    for combiner in ("sum", "mean", "sqrtn"):
        with tf.GradientTape() as tape:
            tape.watch(weights)
            out = sok.lookup_sparse(table, ids, weights, combiner, exchange=exchange)
            # The last bag's gradient is infinite.
            loss = tf.reduce_sum(out[:3]) + tf.reduce_sum(out[3] * float("inf"))
        gradient = tape.gradient(loss, weights)
        result.append((out.numpy(), gradient.numpy()))
    return result


@pytest.mark.parametrize("exchange", ["rows", "partials", "reduce_scatter", "auto"])
def test_zero_divisors_and_nan(ranks, exchange):
    for result in ranks.run(edge_cases, exchange):
        for (out, gradient), (want, want_gradient) in zip(result, edge_cases("auto")):
            np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(gradient[:3], want_gradient[:3], rtol=1e-5, atol=1e-5)
        for out, gradient in result[1:]:
            assert out[3].tolist() == [0, 0]
            assert gradient[3].tolist() == [0, 0]


def half_sums(exchange):
    c = sok.init()
    table = sok.Variable(tf.fill([2 * c.size, 1], 60000.0), dtype="float16")
    many = sok.Variable(tf.ones([4096, 1]), dtype="bfloat16")
    mean = sok.lookup_sparse(table, tf.range(2 * c.size)[tf.newaxis], combiners="mean", exchange=exchange)
    total = sok.lookup_sparse(many, tf.range(4096)[tf.newaxis], combiners="sum", exchange=exchange)
    return float(mean[0, 0]), float(total[0, 0])


@pytest.mark.parametrize("exchange", ["rows", "partials", "reduce_scatter", "auto"])
def test_16_bit_rows_are_summed_in_float32(ranks, exchange):
    assert ranks.run(half_sums, exchange) == [(60000.0, 4096.0)] * ranks.size


def layers(exchange):
    c = sok.init()
    table = sok.TableConfig("table", 3, initializer="normal", seed=3)
    feature = sok.FeatureConfig("x", table, combiner="mean")
    made = [
        sok.EmbeddingCollection([feature], exchange=exchange),
        sok.layers.DistributedEmbedding(3, initializer="normal", seed=3, exchange=exchange),
        sok.layers.LocalizedEmbedding(3, rank=1, initializer="normal", seed=3, exchange=exchange),
    ]
    copies = [type(layer).from_config(layer.get_config()) for layer in made]
    assert [layer.exchange for layer in copies] == [exchange] * 3
    ids = tf.constant([[c.rank, 5, 6], [7, 7, 8]])
    before = sok.stats().get("route_bags", {"calls": 0})["calls"]
    outputs = [layer({"x": ids} if layer is made[0] else ids, training=True) for layer in made]
    outputs[0] = outputs[0]["x"]
    return [x.numpy() for x in outputs], sok.stats().get("route_bags", {"calls": 0})["calls"] - before


@pytest.mark.parametrize(("exchange", "cuts"), [("rows", 0), ("partials", 3)])
def test_layers_pass_it_on(ranks, exchange, cuts):
    for rank, (outputs, calls) in enumerate(ranks.run(layers, exchange)):
        assert calls == cuts
        alone = sok.layers.DistributedEmbedding(3, initializer="normal", seed=3)
        for got in outputs:
            np.testing.assert_allclose(got, alone(tf.constant([[rank, 5, 6], [7, 7, 8]])), rtol=1e-5)


def different_ways():
    c = sok.init()
    table = sok.DynamicVariable(2, initializer="ones")
    ids = tf.constant([[1, 2]])
    try:
        sok.lookup_sparse(table, ids, exchange="partials" if c.rank == 1 else "rows")
    except tf.errors.OpError as error:
        # The job goes on.
        assert sok.lookup_sparse(table, ids, combiners="sum").numpy().tolist() == [[2, 2]]
        return str(error)


def test_ranks_that_ask_for_different_ways(ranks):
    for rank, text in enumerate(ranks.run(different_ways)):
        assert "rank 1 does not make the same lookup as rank 0" in text
        assert f"On rank {rank} it is: exchange={'partials' if rank == 1 else 'rows'!r} of " in text


def test_unknown_way():
    table = sok.DynamicVariable(2)
    for make in (
        lambda: sok.lookup_sparse(table, tf.constant([1]), exchange="all"),
        lambda: sok.layers.DistributedEmbedding(2, exchange="all"),
        lambda: sok.EmbeddingCollection(
            [sok.FeatureConfig("x", sok.TableConfig("t", 2))], exchange="all"
        ),
    ):
        with pytest.raises(
            ValueError, match="exchange must be one of auto, rows, partials, reduce_scatter, got 'all'"
        ):
            make()


def test_a_model_keeps_it(tmp_path):
    model_ = keras.Sequential([keras.Input((2,), dtype="int64"),
                               sok.layers.DistributedEmbedding(2, exchange="partials")])  # fmt: skip
    model_.save(tmp_path / "model.keras")
    assert keras.saving.load_model(tmp_path / "model.keras").layers[0].exchange == "partials"
