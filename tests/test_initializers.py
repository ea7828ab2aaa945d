# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Initial values: distributions, seeds, and independence of the order in which ids come."""

import math

import keras
import numpy as np
import pytest
import reference
import tensorflow as tf

import sok
from sok import initializers
from sok.initializers import InitializerSpec, resolve

INIT = keras.initializers


@pytest.mark.parametrize(
    ("initializer", "expected"),
    [
        (None, InitializerSpec("uniform", -0.05, 0.05)),
        ("random", InitializerSpec("uniform", -0.05, 0.05)),
        ("uniform", InitializerSpec("uniform", 0.0, 1.0)),
        ("normal", InitializerSpec("normal", 0.0, 1.0)),
        ("zeros", InitializerSpec("constant", 0.0)),
        ("ones", InitializerSpec("constant", 1.0)),
        ("13", InitializerSpec("constant", 13.0)),
        ("-0.5", InitializerSpec("constant", -0.5)),
        (7, InitializerSpec("constant", 7.0)),
        (INIT.Zeros(), InitializerSpec("constant", 0.0)),
        (INIT.Ones(), InitializerSpec("constant", 1.0)),
        (INIT.Constant(2.5), InitializerSpec("constant", 2.5)),
        (INIT.RandomUniform(-1, 3, seed=5), InitializerSpec("uniform", -1.0, 3.0, 5)),
        (INIT.RandomNormal(1, 2, seed=6), InitializerSpec("normal", 1.0, 2.0, 6)),
        (INIT.TruncatedNormal(1, 2, seed=7), InitializerSpec("truncated_normal", 1.0, 2.0, 7)),
        ("random_normal", None),
        (INIT.serialize(INIT.RandomUniform(-1, 3, seed=5)), InitializerSpec("uniform", -1.0, 3.0, 5)),
    ],
)
def test_translations(initializer, expected):
    spec = resolve(initializer, 4)
    if expected is None:
        expected = InitializerSpec("normal", 0.0, 0.05, spec.seed)
    assert spec == expected or spec == InitializerSpec(expected.kind, expected.a, expected.b, spec.seed)


@pytest.mark.parametrize("name", ["GlorotUniform", "GlorotNormal", "HeUniform", "HeNormal", "LecunNormal"])
def test_variance_scaling(name):
    """The fan is the width."""
    initializer = getattr(INIT, name)(seed=3)
    table = sok.DynamicVariable(64, initializer=initializer)
    values = sok.lookup_sparse(table, tf.range(4000)).numpy()
    scale = {"Glorot": 1.0, "He": 2.0, "Lecun": 1.0}[name.replace("Uniform", "").replace("Normal", "")]
    np.testing.assert_allclose(values.std(), math.sqrt(scale / 64), rtol=0.02)
    np.testing.assert_allclose(values.mean(), 0.0, atol=0.002)


@pytest.mark.parametrize("dtype", reference.ROW_DTYPES)
@pytest.mark.parametrize(
    ("initializer", "mean", "deviation", "low", "high"),
    [
        ("random", 0.0, 0.1 / math.sqrt(12), -0.05, 0.05),
        ("uniform", 0.5, 1 / math.sqrt(12), 0.0, 1.0),
        ("normal", 0.0, 1.0, -6.5, 6.5),
        (INIT.RandomNormal(2.0, 0.5), 2.0, 0.5, -2.0, 6.0),
        (INIT.TruncatedNormal(1.0, 2.0), 1.0, 2.0 * 0.87962566, -3.0, 5.0),
        ("0.25", 0.25, 0.0, 0.25, 0.25),
    ],
)
def test_distributions(initializer, mean, deviation, low, high, dtype):
    """Mean and deviation over 10,000 new ids, and no value outside."""
    table = sok.DynamicVariable(8, initializer=initializer, dtype=dtype, seed=12345)
    values = tf.cast(sok.lookup_sparse(table, tf.range(10_000)), tf.float64).numpy()
    error = 5 * deviation / math.sqrt(values.size) + 1e-12
    rounding = {"float32": 1e-7, "float16": 1e-3, "bfloat16": 8e-3}[dtype]
    assert abs(values.mean() - mean) < error + rounding * max(abs(mean), deviation) * 0.1
    np.testing.assert_allclose(values.std(), deviation, rtol=0.02, atol=1e-7)
    slack = rounding * max(abs(low), abs(high))
    assert values.min() >= low - slack
    assert values.max() <= high + slack
    if deviation:
        # Rows and columns are independent.
        correlation = np.corrcoef(values.T)
        assert np.max(np.abs(correlation - np.eye(8))) < 0.06
        lag = np.corrcoef(values[:-1].ravel(), values[1:].ravel())[0, 1]
        assert abs(lag) < 0.02


def test_normal_quantiles():
    table = sok.DynamicVariable(16, initializer="normal", seed=9)
    values = np.sort(sok.lookup_sparse(table, tf.range(20_000)).numpy().ravel())
    for quantile, expected in ((0.001, -3.0902), (0.1, -1.2816), (0.5, 0.0), (0.9, 1.2816), (0.999, 3.0902)):
        assert abs(values[int(quantile * values.size)] - expected) < 0.06


def test_values_depend_on_seed_key_and_column_alone(rng):
    """Not on batches, order, capacity, threads, growth, erasure or the row type of another table."""
    ids = np.concatenate([reference.SENTINELS["int64"], rng.integers(-(2**63), 2**63 - 1, 5000)])
    one = sok.DynamicVariable(7, initializer="normal", seed=4)
    expected = sok.lookup_sparse(one, ids).numpy()
    other = sok.DynamicVariable(7, initializer="normal", seed=4, capacity=9000)
    order = rng.permutation(len(ids))
    for part in np.array_split(order, 17):
        sok.lookup_sparse(other, ids[part])
    sok.erase(other, ids[:100])
    np.testing.assert_array_equal(sok.lookup_sparse(other, ids), expected)
    np.testing.assert_array_equal(
        sok.lookup_sparse(sok.DynamicVariable(7, initializer="normal", seed=4), ids, training=False),
        expected,
    )
    # A wider table starts with the same columns.
    wide = sok.DynamicVariable(9, initializer="normal", seed=4)
    np.testing.assert_array_equal(sok.lookup_sparse(wide, ids)[:, :7], expected)
    changed = sok.DynamicVariable(7, initializer="normal", seed=5)
    assert np.all(np.any(sok.lookup_sparse(changed, ids) != expected, axis=1))
    assert len({row.tobytes() for row in expected}) == len(set(ids.tolist()))


def test_static_and_hash_tables_agree():
    static = sok.Variable(shape=(1000, 5), initializer="normal", seed=3)
    table = sok.DynamicVariable(5, initializer="normal", seed=3)
    np.testing.assert_array_equal(sok.export(static)[1], sok.lookup_sparse(table, tf.range(1000)))


def test_seeds():
    """Given, from the initializer, or drawn so that set_random_seed repeats it."""
    given = sok.DynamicVariable(2, initializer=INIT.RandomNormal(seed=5), seed=6)
    assert given.table.seed == 6
    assert sok.DynamicVariable(2, initializer=INIT.RandomNormal(seed=5)).table.seed == 5
    drawn = []
    for _ in range(2):
        keras.utils.set_random_seed(11)
        drawn.append([sok.DynamicVariable(2).table.seed for _ in range(3)])
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) == 3


def test_static_tables_take_any_keras_initializer():
    table = sok.Variable(shape=(6, 6), initializer=INIT.Orthogonal(seed=1))
    values = sok.export(table)[1].numpy()
    np.testing.assert_allclose(values @ values.T, np.eye(6), atol=1e-5)
    assert initializers.resolve(INIT.Orthogonal(), 4) is None

    def ramp(shape, dtype=None):
        return np.arange(np.prod(shape), dtype=dtype).reshape(shape)

    np.testing.assert_array_equal(sok.export(sok.Variable(shape=(2, 3), initializer=ramp))[1], [[0, 1, 2], [3, 4, 5]])
