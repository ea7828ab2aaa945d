# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables that are copied, pickled, and used inside of tapes, functions and data sets."""

import copy
import gc
import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf

import sok

# Copies ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["hash", "static"])
def test_deep_copies_are_tables_of_their_own(kind):
    table = sok.DynamicVariable(2, seed=3) if kind == "hash" else sok.Variable([[1.0, 2.0], [3.0, 4.0]])
    ids = tf.constant([[0, 1]])
    optimizer = sok.OptimizerWrapper(keras.optimizers.Adagrad(0.1))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(sok.lookup_sparse(table, ids))
    optimizer.apply_gradients([(tape.gradient(loss, table), table)])
    before = sok.check_out(table)
    copied = copy.deepcopy({"a": table, "b": table})
    assert copied["a"] is copied["b"]
    copied = copied["a"]
    for name, values in sok.check_out(copied).items():
        np.testing.assert_array_equal(values, before[name], err_msg=name)
    sok.assign(copied, [0], [[9.0, 9.0]])
    np.testing.assert_array_equal(sok.check_out(table)["values"], before["values"])
    # The copy's end is not the table's.
    del copied
    gc.collect()
    np.testing.assert_array_equal(sok.check_out(table)["values"], before["values"])


def test_shallow_copies_and_pickles_of_a_table_are_refused(table):
    for attempt in (copy.copy, pickle.dumps):
        with pytest.raises(TypeError, match=r"'items' cannot be pickled.*numpy\(\).*copy\.deepcopy"):
            attempt(table)
    array = pickle.loads(pickle.dumps(table.numpy()))
    table.assign(array)


def test_copies_of_models_and_configurations():
    model = keras.Sequential([keras.Input((1,), dtype="int64"), sok.layers.DistributedEmbedding(2)])
    model.compile(sok.OptimizerWrapper("adam"), "mse")
    ids = np.arange(6)[:, None]
    model.fit(ids, np.zeros((6, 2)), verbose=0)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other.predict(ids, verbose=0), model.predict(ids, verbose=0))
    config = sok.TableConfig("items", 2, default=[1.0, 2.0])
    assert pickle.loads(pickle.dumps(config)) == copy.deepcopy(config) == config


# Tapes and functions --------------------------------------------------------------------------------


def test_tables_as_arguments_of_a_function(table):
    """Each is traced for itself, like other objects; a table inside of a structure too."""
    zeros = sok.DynamicVariable(2, initializer="zeros")
    traces = []

    @tf.function(reduce_retracing=True)
    def step(tables, ids):
        traces.append(tables)
        with tf.GradientTape() as tape:
            rows = sok.lookup_sparse(tables["a"], ids)
        return rows, tape.gradient(rows, tables["a"]).values

    for _ in range(2):
        for chosen, value in ((table, 1.0), (zeros, 0.0)):
            rows, gradient = step({"a": chosen}, tf.constant([5]))
            np.testing.assert_array_equal(rows, [[value, value]])
            np.testing.assert_array_equal(gradient, [[1.0, 1.0]])
    assert len(traces) == 2
    concrete = step.get_concrete_function({"a": table}, tf.TensorSpec([None], tf.int32))
    np.testing.assert_array_equal(concrete(tf.constant([7, 8]))[0], np.ones((2, 2)))
    assert table.size == [3, 2]


def test_second_derivatives_say_that_there_are_none(run, table):
    weights = tf.constant([[1.0, 2.0]])

    def second(target):
        with tf.GradientTape() as outer:
            outer.watch(weights)
            with tf.GradientTape() as inner:
                inner.watch(weights)
                loss = tf.reduce_sum(sok.lookup_sparse(table, [[1, 2]], weights, combiners="sum") ** 2)
            first = inner.gradient(loss, table if target == "table" else weights)
            first = first.values if target == "table" else first
            norm = tf.reduce_sum(first**2)
        return outer.gradient(norm, weights)

    for target in ("table", "weights"):
        with pytest.raises(NotImplementedError, match=r"Sok>\w+: gradients of gradients do not pass"):
            run(lambda target=target: second(target))


def test_persistent_tapes(run, table):
    def twice():
        with tf.GradientTape(persistent=True) as tape:
            loss = tf.reduce_sum(sok.lookup_sparse(table, [[1, 1]], combiners="sum") ** 2)
        return [tape.gradient(loss, table).values for _ in range(2)]

    first, second = run(twice)
    np.testing.assert_array_equal(first, [[8.0, 8.0]])
    np.testing.assert_array_equal(first, second)


def test_functions_with_a_gradient_of_their_own_say_what_to_do(table):
    lookup = tf.recompute_grad(lambda ids: sok.lookup_sparse(table, ids) * 2.0)

    def train():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(lookup(tf.constant([[1]])))
        return tape.gradient(loss, table)

    with pytest.raises(NotImplementedError, match=r"'items' cannot be read inside tf\.custom_gradient.*look up before"):
        train()


def test_lookups_inside_of_data_sets(table):
    rows = tf.data.Dataset.range(6).batch(2).map(lambda ids: sok.lookup_sparse(table, ids, training=False))
    assert [batch.shape for batch in rows] == [(2, 2)] * 3
    assert table.size == [0, 2]


def test_forced_compilation_names_the_op(table):
    compiled = tf.function(lambda ids: sok.lookup_sparse(table, ids), jit_compile=True)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"Sok>Lookup"):
        compiled(tf.constant([[1]]))


def test_many_steps_keep_nothing():
    table = sok.DynamicVariable(2)
    optimizer = sok.OptimizerWrapper(keras.optimizers.Adam(0.1))

    def step():
        with tf.GradientTape() as tape:
            rows = sok.lookup_sparse(table, tf.constant([[1, 2]]), tf.constant([[1.0, 2.0]]))
        optimizer.apply_gradients([(tape.gradient(rows, table), table)])

    def objects(steps):
        for _ in range(steps):
            step()
        gc.collect()
        return len(gc.get_objects())

    assert objects(1000) - objects(20) < 200
