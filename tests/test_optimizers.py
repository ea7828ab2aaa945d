# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Formulas: each rule against its oracle, local and global, and against Keras on dense data."""

import json
import os
import pathlib
import subprocess
import sys

import keras
import kinds
import numpy as np
import pytest
import reference
import tensorflow as tf
from reference_optimizers import CASES, Reference, keras_optimizer

import sok
from sok.optimizers.rules import source_type
from sok.stages.update import OPTIMIZERS

ROWS, STEPS = 12, 5

every_rule = pytest.mark.parametrize("name", CASES)


def _steps(rng, width, rows=ROWS):
    """Batches of ids with repetitions; the last rows are in none."""
    for size in [9, 1, 0, 17, 6][:STEPS]:
        yield rng.integers(0, rows - 3, size), rng.normal(size=(size, width)).astype(np.float32)


def _apply(optimizer, table, ids, gradients):
    keys = tf.constant(ids, tf.int64)
    optimizer.apply_gradients([(tf.IndexedSlices(tf.constant(gradients), keys), table)])


def _exported(table):
    ids, rows = sok.export(table)
    return dict(zip(ids.numpy().tolist(), tf.cast(rows, tf.float64).numpy(), strict=True))


def _table(kind, values):
    if kind == "static":
        return sok.Variable(values)
    return kinds.table_of(dict(enumerate(values)))[0]


def test_every_native_rule_is_tested():
    rules = {source_type(o)(o).rule for o in (keras_optimizer(*case) for case in CASES.values())}
    assert rules == set(OPTIMIZERS)


@every_rule
@pytest.mark.parametrize("update", ["local", "global"])
@pytest.mark.parametrize(("kind", "width"), [("hash", 1), ("hash", 33), ("static", 16)])
def test_rule_follows_the_oracle(name, update, kind, width, rng):
    formula, hyper = CASES[name]
    values = rng.normal(size=(ROWS, width)).astype(np.float32)
    table = _table(kind, values)
    expected = {"t": {key: row.astype(np.float64) for key, row in enumerate(values)}}
    optimizer = sok.OptimizerWrapper(keras_optimizer(formula, hyper), update)
    oracle = Reference(formula, hyper, update)
    for ids, gradients in _steps(rng, width):
        _apply(optimizer, table, ids, gradients)
        oracle.step(expected, {"t": (ids.tolist(), gradients)})
    kinds.assert_rows(_exported(table), expected["t"], rtol=1e-4, atol=1e-5)
    assert int(optimizer.iterations) == STEPS


@every_rule
def test_global_update_is_what_keras_does_on_dense_data(name, rng):
    width = 7
    formula, hyper = CASES[name]
    values = rng.normal(size=(ROWS, width)).astype(np.float32)
    table = _table("hash", values)
    optimizer = sok.OptimizerWrapper(keras_optimizer(formula, hyper), "global")
    dense, dense_optimizer = keras.Variable(values), keras_optimizer(formula, hyper)
    for ids, gradients in _steps(rng, width):
        _apply(optimizer, table, ids, gradients)
        summed = np.zeros((ROWS, width), np.float32)
        np.add.at(summed, ids, gradients)
        dense_optimizer.apply([tf.constant(summed)], [dense])
    close = {"rtol": 2e-5, "atol": 2e-6}
    kinds.assert_rows(_exported(table), dict(enumerate(dense.numpy())), **close)


@every_rule
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bit_rows_keep_float32_states(name, dtype, rng):
    width = 8
    formula, hyper = CASES[name]
    values = dict(enumerate(rng.normal(size=(ROWS, width))))
    table, stored = kinds.table_of(values, dtype=dtype)
    optimizer = sok.OptimizerWrapper(keras_optimizer(formula, hyper))
    oracle = Reference(formula, hyper)
    for ids, gradients in _steps(rng, width):
        _apply(optimizer, table, ids, gradients)
        oracle.step({"t": stored}, {"t": (ids.tolist(), gradients)})
        # Rows are rounded after each step: so does the oracle.
        stored = {k: tf.cast(tf.cast(r, dtype), tf.float64).numpy() for k, r in stored.items()}
    kinds.assert_rows(_exported(table), stored, **reference.TOLERANCE[dtype])
    held = sok.check_out(table)
    assert all(held[state].dtype == np.float32 for state in held if state not in ("ids", "values"))


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        (keras.optimizers.Adagrad(0.1, initial_accumulator_value=0.1), 0.400551),
        (keras.optimizers.Adam(0.1), 0.4),
        (keras.optimizers.RMSprop(0.1), 0.183772),
        (keras.optimizers.Ftrl(0.1, initial_accumulator_value=0.1), 0.348137),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_repeated_ids_are_summed_before_one_update(optimizer, expected):
    table = sok.DynamicVariable(1, initializer="0.5")
    _apply(sok.OptimizerWrapper(optimizer), table, [1, 1], np.float32([[1], [2]]))
    np.testing.assert_allclose(_exported(table)[1], [expected], atol=2e-6)


@pytest.mark.parametrize(
    ("make", "local", "all_rows"),
    [
        (lambda: keras.optimizers.Adam(0.1), 0.4, 0.33299),
        (lambda: keras.optimizers.SGD(0.1, momentum=0.9), 0.2, -0.07),
    ],
)
def test_local_leaves_other_rows_and_their_states_alone(make, local, all_rows):
    for update, expected in (("local", local), ("global", all_rows)):
        table = sok.DynamicVariable(1, initializer="0.5")
        optimizer = sok.OptimizerWrapper(make(), update)
        _apply(optimizer, table, [1], np.float32([[3]]))
        before = sok.check_out(table)
        _apply(optimizer, table, [2], np.float32([[1]]))
        np.testing.assert_allclose(_exported(table)[1], [expected], atol=1e-5)
        after = sok.check_out(table)
        same = all(np.array_equal(before[name], after[name][after["ids"] == 1]) for name in before)
        assert same == (update == "local")


@pytest.mark.parametrize("update", ["local", "global"])
def test_weight_decay_reaches_the_rows_that_update_names(update):
    table = sok.Variable([[1.0], [1.0]])
    optimizer = sok.OptimizerWrapper(keras.optimizers.SGD(0.1, weight_decay=0.5), update)
    _apply(optimizer, table, [0], np.float32([[1]]))
    untouched = 0.95 if update == "global" else 1.0
    np.testing.assert_allclose(table.numpy(), [[0.85], [untouched]], rtol=1e-6)


@every_rule
def test_a_key_without_a_row_gets_its_initial_value_and_then_the_update(name):
    formula, hyper = CASES[name]
    table = sok.DynamicVariable(3, initializer="0.5")
    _apply(sok.OptimizerWrapper(keras_optimizer(formula, hyper)), table, [-7], np.float32([[1, -2, 0]]))
    expected = {"t": {-7: np.full(3, 0.5)}}
    Reference(formula, hyper).step(expected, {"t": ([-7], [[1, -2, 0]])})
    kinds.assert_rows(_exported(table), expected["t"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("update", ["local", "global"])
def test_a_nan_stays_in_its_own_row(update):
    table = sok.Variable([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
    optimizer = sok.OptimizerWrapper(keras.optimizers.Adam(0.1), update)
    _apply(optimizer, table, [0, 2], np.float32([[np.nan, 1], [1, 1]]))
    rows = table.numpy()
    assert np.isnan(rows[0, 0])
    assert np.isfinite(rows[0, 1])
    assert np.isfinite(rows[1:]).all()
    np.testing.assert_allclose(rows[1], 2.0)


def test_row_wise_adagrad_of_a_dense_variable_is_that_of_a_table(rng):
    values = rng.normal(size=(ROWS, 6)).astype(np.float32)
    table, dense = _table("hash", values), keras.Variable(values)
    bias = keras.Variable(np.ones(ROWS, np.float32))
    optimizer = sok.OptimizerWrapper(sok.optimizers.RowWiseAdagrad(0.1))
    dense_optimizer = sok.optimizers.RowWiseAdagrad(0.1)
    assert isinstance(dense_optimizer, keras.optimizers.Optimizer)
    for ids, gradients in _steps(rng, 6):
        _apply(optimizer, table, ids, gradients)
        sparse = tf.IndexedSlices(tf.constant(gradients), tf.constant(ids), tf.constant([ROWS, 6]))
        dense_optimizer.apply([sparse, tf.ones([ROWS])], [dense, bias])
    kinds.assert_rows(_exported(table), dict(enumerate(dense.numpy())), rtol=1e-5, atol=1e-6)
    # The rows of a vector are its entries: Adagrad itself.
    plain = keras.Variable(np.ones(ROWS, np.float32))
    adagrad = keras.optimizers.Adagrad(0.1)
    for _ in range(STEPS):
        adagrad.apply([tf.ones([ROWS])], [plain])
    np.testing.assert_allclose(bias.numpy(), plain.numpy(), rtol=1e-6)


def test_row_wise_adagrad_is_saved_as_keras_optimizers_are():
    optimizer = sok.optimizers.RowWiseAdagrad(0.3, initial_accumulator_value=0.2, epsilon=0.1, clipnorm=2.0)
    copy = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(copy) is type(optimizer)
    assert copy.get_config() == optimizer.get_config()


def test_optimizers_without_a_rule_are_refused_with_the_list_of_the_others():
    supported = "Adadelta, Adagrad, Adam, AdamW, Adamax, Ftrl, RMSprop, RowWiseAdagrad, SGD"

    class Changed(keras.optimizers.Adam):
        pass

    for optimizer in (keras.optimizers.Nadam(), keras.optimizers.Lion(), Changed()):
        with pytest.raises(ValueError, match=f"{type(optimizer).__name__}: it supports {supported}"):
            sok.OptimizerWrapper(optimizer)
    assert sok.optimizers.supported() == tuple(supported.split(", "))
    assert set(sok.optimizers.supported()) < set(sok.optimizers.__all__)
    with pytest.raises(TypeError, match="expected an optimizer of Keras or tf_keras"):
        sok.OptimizerWrapper(3)


def test_an_update_that_fails_changes_nothing():
    table = sok.Variable([[1.0], [2.0]])
    optimizer = sok.OptimizerWrapper(keras.optimizers.SGD(0.1))
    with pytest.raises(tf.errors.InvalidArgumentError, match="id 2 at position 1 is out of range"):
        _apply(optimizer, table, [0, 2], np.float32([[1], [1]]))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"shape"):
        _apply(optimizer, table, [0], np.float32([[1, 1]]))
    np.testing.assert_array_equal(table.numpy(), [[1.0], [2.0]])


def test_more_rows_than_a_thread_and_a_slab(rng):
    # Several threads, several slabs: each row is updated once, whoever does it.
    ids = rng.permutation(30_000)
    table = sok.DynamicVariable(4, initializer="ones", capacity=10)
    optimizer = sok.OptimizerWrapper(keras.optimizers.SGD(1.0), "global")
    for part in np.array_split(ids, 3):
        _apply(optimizer, table, np.concatenate([part, part]), np.ones((2 * len(part), 4), np.float32))
    assert table.size == [30_000, 4]
    np.testing.assert_array_equal(np.stack(list(_exported(table).values())), -1.0)


def test_training_allocates_nothing_of_the_tables_size_but_states():
    """10 M rows of width 64, batches of 100 ids, every rule; clipping by the norm on top."""
    script = pathlib.Path(__file__).parent / "sparse_memory.py"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    measured = json.loads(done.stdout.splitlines()[-1])
    assert {name.split()[1] for name in measured} == set(OPTIMIZERS)
    for name, bytes_of in measured.items():
        assert bytes_of["rise"] <= bytes_of["allowed"], (name, bytes_of)
