# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lookups at the edges: empty bags, divisors of zero, numbers that are none, ids without a row."""

import functools

import kinds
import numpy as np
import pytest
import reference
import tensorflow as tf

import sok


def test_worked_numbers():
    """Values and weights of a table small enough to follow by hand."""
    table = sok.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]])
    ids = tf.constant([[1, 3]])

    def three(weights=None):
        return [sok.lookup_sparse(table, ids, weights, combiner).numpy()[0] for combiner in reference.COMBINERS]

    np.testing.assert_allclose(three(), [[10, 12], [5, 6], [7.071068, 8.485281]], rtol=1e-6)
    np.testing.assert_allclose(three([[0.5, 2.0]]), [[15.5, 18], [6.2, 7.2], [7.518604, 8.731283]], rtol=1e-6)
    np.testing.assert_allclose(three([[1.0, -1.0]]), [[-4, -4], [0, 0], [-2.828427, -2.828427]], rtol=1e-6)
    for combiner, expected in (
        ("mean", {1: 2 / 3, 2: 1 / 3}),
        ("sqrtn", {1: 1.154700, 2: 0.577350}),
        ("sum", {1: 2.0, 2: 1.0}),
    ):
        _, (slices,), _ = kinds.lookup_with_gradients(
            [table], [tf.constant([[1, 1, 2]])], [None], [combiner], [np.ones((1, 2))]
        )
        kinds.assert_rows(kinds.slices_as_dict(slices), {k: [v, v] for k, v in expected.items()}, rtol=1e-6)


def test_weight_gradient_of_a_mean():
    table = sok.Variable([[1.0], [3.0]])
    _, _, (gradient,) = kinds.lookup_with_gradients(
        [table], [tf.constant([[0, 1]])], [tf.constant([[1.0, 0.0]])], ["mean"], [np.ones((1, 1))]
    )
    np.testing.assert_array_equal(gradient, [[0.0, 2.0]])


@pytest.mark.parametrize("combiner", ["mean", "sqrtn"])
def test_divisor_of_zero_is_zero_and_never_nan(combiner):
    """Also when rows and gradients are not finite."""
    table = sok.Variable([[np.inf, 1.0], [np.nan, 2.0], [3.0, 4.0]])
    weights = [[1.0, -1.0], [0.0, 0.0]] if combiner == "mean" else [[0.0, 0.0], [0.0, 0.0]]
    (output,), (slices,), (weight_gradient,) = kinds.lookup_with_gradients(
        [table],
        [tf.constant([[0, 1], [2, 2]])],
        [tf.constant(weights)],
        [combiner],
        [np.full((2, 2), np.inf)],
    )
    np.testing.assert_array_equal(output, np.zeros((2, 2)))
    kinds.assert_rows(kinds.slices_as_dict(slices), {i: [0.0, 0.0] for i in range(3)})
    np.testing.assert_array_equal(weight_gradient, np.zeros((2, 2)))


@pytest.mark.parametrize("combiner", reference.COMBINERS)
def test_nan_stays_in_its_own_bag(combiner):
    table = sok.Variable([[1.0, 2.0], [3.0, 4.0]])
    (output,), (slices,), (weight_gradient,) = kinds.lookup_with_gradients(
        [table],
        [tf.constant([[0, 0], [1, 1]])],
        [tf.constant([[np.nan, 1.0], [1.0, 1.0]])],
        [combiner],
        [np.ones((2, 2))],
    )
    assert np.all(np.isnan(output[0]))
    assert np.all(np.isfinite(output[1]))
    gradients = kinds.slices_as_dict(slices)
    assert np.all(np.isnan(gradients[0]))
    assert np.all(np.isfinite(gradients[1]))
    assert np.all(np.isfinite(weight_gradient[1]))


@pytest.mark.parametrize("kind", ["ragged32", "ragged64", "sparse", "nested", "masked"])
def test_empty_bags_give_zeros(run, kind):
    table = sok.DynamicVariable(2, initializer="ones")
    bags = [[], [], [], [1], []]

    def both(ids):
        mask = kinds.PADDING if kind == "masked" else None
        return sok.lookup_sparse(table, ids, combiners="mean", mask_value=mask)

    output = run(both, kinds.make(kind, bags, "int64"))
    np.testing.assert_array_equal(output, [[0, 0], [0, 0], [0, 0], [1, 1], [0, 0]])


@pytest.mark.parametrize("kind", kinds.KINDS)
@pytest.mark.parametrize("batch", [0, 3])
def test_no_ids_at_all(run, kind, batch):
    """[0, k] gives [0, dimension]; a batch without an id trains to nothing."""
    table = sok.DynamicVariable(2)
    ids = kinds.make(kind, [[]] * batch, "int64")
    if kind == "dense":
        ids = tf.zeros([batch, 0 if batch else 4], tf.int64)
    outputs, (slices,), _ = run(
        lambda ids: kinds.lookup_with_gradients([table], [ids], [None], ["mean"], [np.ones((batch, 2))]),
        ids,
    )
    np.testing.assert_array_equal(outputs[0], np.zeros((batch, 2)))
    assert slices.indices.shape == [0]
    assert slices.values.shape == [0, 2]
    assert table.size == [0, 2]


def test_row_splits_matter(run):
    table = sok.Variable([[1.0], [10.0], [100.0]])
    lookup = lambda ids: sok.lookup_sparse(table, ids, combiners="sum")  # noqa: E731
    first = run(lookup, tf.RaggedTensor.from_row_splits([0, 1, 2], [0, 1, 3]))
    second = run(lookup, tf.RaggedTensor.from_row_splits([0, 1, 2], [0, 2, 3]))
    np.testing.assert_array_equal(first, [[1], [110]])
    np.testing.assert_array_equal(second, [[11], [100]])


def test_unknown_ids_outside_of_training(run):
    """They read the default; nothing changes."""
    for default, expected in (("zeros", [0, 0]), ([1.0, -2.0], [1, -2]), ("initial", [13, 13])):
        table = sok.DynamicVariable(2, initializer="13", default=default)
        read = functools.partial(sok.lookup_sparse, table, training=False)
        np.testing.assert_array_equal(run(read, tf.constant([[5, 5]])), [expected])
        assert table.size == [0, 2]
        assert sok.stats(table)[table.name]["inserted"] == 0


def test_initial_default_is_what_training_would_insert():
    for dtype in reference.ROW_DTYPES:
        table = sok.DynamicVariable(5, initializer="normal", dtype=dtype)
        ids = tf.constant(reference.SENTINELS["int64"], tf.int64)
        before = sok.lookup_sparse(table, ids, training=False).numpy()
        after = sok.lookup_sparse(table, ids, training=True).numpy()
        np.testing.assert_array_equal(before, after)


def test_gradient_of_a_key_that_is_not_there():
    """A tape around a lookup with training=False trains too: initial value, then the update."""
    table = sok.DynamicVariable(2, initializer="ones")
    optimizer = sok.SGD(0.5)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(sok.lookup_sparse(table, tf.constant([[5]]), training=False))
    optimizer.apply_gradients(zip(tape.gradient(loss, [table]), [table], strict=True))
    kinds.assert_rows(kinds.export_as_dict(table), {5: [0.5, 0.5]})


def test_frozen_table_has_no_gradient():
    table = sok.DynamicVariable(2, trainable=False)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(sok.lookup_sparse(table, tf.constant([[5]])))
    assert tape.gradient(loss, [table]) == [None]


def test_large_table_reads_its_last_row():
    """Offsets are 64 bits: 2^24 rows of 129 are more than 2^31 numbers."""
    table = sok.Variable(shape=(2**24, 129), initializer="zeros")
    last = 2**24 - 1
    sok.assign(table, [last, 2**24 - 2], np.stack([np.arange(129), np.ones(129)]))
    output = sok.lookup_sparse(table, tf.constant([[last], [last - 1]]))
    np.testing.assert_array_equal(output, [np.arange(129), np.ones(129)])
