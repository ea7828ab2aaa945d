# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""OptimizerWrapper: an optimizer of its Keras that trains tables as it trains dense variables."""

import keras
import kinds
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.python.eager import context

import sok

LEGACY = tf_keras.optimizers.legacy


# Steps.


def test_iterations_advance_with_tables_only_and_with_an_empty_batch(run):
    table, dense = sok.Variable([[1.0]]), keras.Variable([1.0])
    optimizer = sok.OptimizerWrapper(keras.optimizers.Adam(0.1))
    optimizer.build([table, dense])
    run(lambda: optimizer.apply([kinds.slices([0], [[1]])], [table]))
    run(lambda: optimizer.apply([kinds.slices(np.zeros(0), np.zeros((0, 1)))], [table]))
    run(lambda: optimizer.apply([tf.ones(1)], [dense]))
    assert int(optimizer.iterations) == 3
    # Both saw the global step: 1 for the row, 3 for the variable.
    np.testing.assert_allclose(table.numpy(), [[0.9]], rtol=1e-5)
    bare, expected = keras.optimizers.Adam(0.1), keras.Variable([1.0])
    bare.build([expected])
    bare.iterations.assign(2)
    bare.apply([tf.ones(1)], [expected])
    np.testing.assert_allclose(dense.numpy(), expected.numpy(), rtol=1e-6)


def _loss(table, ids, weights):
    return tf.reduce_sum(weights * sok.lookup_sparse(table, ids, combiners="sum"))


@pytest.mark.parametrize(
    "change",
    [
        lambda g: g,
        lambda g: tf.clip_by_global_norm([g], 0.5)[0][0],
        lambda g: tf.clip_by_norm(g, 0.5),
        lambda g: tf.IndexedSlices(0.25 * g.values, g.indices, g.dense_shape),
        lambda g: tf.IndexedSlices(tf.cast(g.values, tf.float64), tf.cast(g.indices, tf.int32)),
        lambda g: tf.IndexedSlices(tf.concat([g.values] * 2, 0), tf.concat([g.indices] * 2, 0)),
    ],
    ids=["as it is", "clip_by_global_norm", "clip_by_norm", "scaled", "other types", "twice"],
)
def test_custom_loop_takes_the_tapes_gradients_also_changed(run, change):
    table = sok.Variable(np.ones((4, 2), np.float32))
    optimizer = sok.OptimizerWrapper(keras.optimizers.SGD(0.5))
    ids, weights = tf.constant([[1, 1], [2, 3]]), tf.constant([[1.0, 2.0], [3.0, 4.0]])

    def step():
        with tf.GradientTape() as tape:
            loss = _loss(table, ids, weights)
        gradient = change(tape.gradient(loss, table))
        optimizer.apply_gradients([(gradient, table)])
        return tf.math.unsorted_segment_sum(tf.cast(gradient.values, tf.float32), gradient.indices, 4)

    summed = run(step)
    np.testing.assert_allclose(table.numpy(), 1.0 - 0.5 * summed.numpy(), rtol=1e-6)


def test_a_table_in_two_lookups_of_a_step_gets_one_update():
    table = sok.Variable(np.zeros((3, 1), np.float32))
    optimizer = sok.OptimizerWrapper(keras.optimizers.Adagrad(1.0, initial_accumulator_value=0.0, epsilon=0.0))
    with tf.GradientTape() as tape:
        loss = _loss(table, tf.constant([[0]]), 1.0) + _loss(table, tf.constant([[0, 1]]), 2.0)
    optimizer.apply_gradients([(tape.gradient(loss, table), table)])
    # One step each, of the sign of the sum: 3 / sqrt(9). Two would give -1.9.
    np.testing.assert_allclose(table.numpy(), [[-1], [-1], [0]], rtol=1e-6)


def ops_that_ran(function, *args) -> list[str]:
    """Types of the ops that the first call of a `tf.function` runs, after the graph's optimisation."""
    context.context().enable_graph_collection()
    function(*args)
    functions = context.context().export_run_metadata().function_graphs
    context.context().disable_graph_collection()
    graphs = [graph for function_ in functions for graph in function_.partition_graphs]
    return [node.op for graph in graphs for node in graph.node if node.op.startswith("Sok>")]


@pytest.mark.parametrize("clipped", [False, True])
def test_one_op_updates_all_tables_of_a_step(clipped):
    tables = [sok.DynamicVariable(2) for _ in range(5)]
    options = {"clipvalue": 0.5} if clipped else {}
    optimizer = sok.OptimizerWrapper(keras.optimizers.Adam(**options))

    @tf.function
    def step(ids):
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(out) for out in sok.lookup_sparse(tables, [ids] * 5)])
        optimizer.apply_gradients(zip(tape.gradient(loss, tables), tables))

    ids = tf.zeros([3, 2], tf.int64)
    # Nothing reads the rows' gradients unless they are clipped: then they are not even computed.
    expected = ["Sok>Merge", "Sok>Update"] if clipped else ["Sok>MergeUpdate"]
    expected = ["Sok>HyperParameters", "Sok>Lookup", *expected]
    assert sorted(ops_that_ran(step, ids)) == expected


def test_fused_and_separate_merge_agree(request):
    sok.deterministic(True)
    request.addfinalizer(lambda: sok.deterministic(False))
    rng = np.random.default_rng(2)
    ids = tf.constant(rng.integers(0, 40, (64, 3)))
    results = []
    for options in ({}, {"clipvalue": 1e9}):
        table = sok.DynamicVariable(5, "normal", seed=3)
        optimizer = sok.OptimizerWrapper(keras.optimizers.Adagrad(0.1, **options))

        def step():
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(sok.lookup_sparse(table, ids, combiners="mean") ** 2)  # noqa: B023
            optimizer.apply_gradients([(tape.gradient(loss, table), table)])  # noqa: B023

        compiled = tf.function(step)
        for _ in range(3):
            compiled()
        content = sok.check_out(table)
        order = np.argsort(content["ids"])
        results.append({name: value[order] for name, value in content.items()})
    for name in results[0]:
        np.testing.assert_array_equal(results[0][name], results[1][name])


def test_tables_may_be_new_after_build(run):
    first, dense = sok.DynamicVariable(1, initializer="ones"), keras.Variable([1.0])
    optimizer = sok.OptimizerWrapper(keras.optimizers.SGD(0.5))
    optimizer.build([first, dense])
    late = sok.DynamicVariable(1, initializer="ones")
    run(lambda: optimizer.apply([kinds.slices([3], [[1]]), tf.ones(1)], [late, dense]))
    assert kinds.export_as_dict(late) == {3: [0.5]}
    with pytest.raises(ValueError, match="Unknown variable"):
        optimizer.apply([tf.ones(1)], [keras.Variable([1.0])])


def test_gradients_without_variables_need_a_build():
    table = sok.Variable([[1.0]])
    optimizer = sok.OptimizerWrapper(keras.optimizers.SGD(0.5))
    with pytest.raises(ValueError, match=r"call optimizer.build\(variables\) first"):
        optimizer.apply([kinds.slices([0], [[1]])])
    optimizer.build([table])
    optimizer.apply([kinds.slices([0], [[1]])])
    np.testing.assert_allclose(table.numpy(), [[0.5]])
    optimizer.apply([])
    with pytest.raises(ValueError, match="No gradients provided for any variable"):
        optimizer.apply([None])


def test_gradients_of_tables_that_are_none_or_dense():
    table, dense = sok.Variable([[1.0]]), keras.Variable([1.0])
    optimizer = sok.OptimizerWrapper(keras.optimizers.SGD(0.5))
    with pytest.warns(UserWarning, match="Gradients do not exist for variables"):
        optimizer.apply([None, tf.ones(1)], [table, dense])
    assert float(dense.numpy()[0]) == 0.5
    assert float(table.numpy()[0, 0]) == 1.0
    with pytest.raises(TypeError, match=r"must be the tf.IndexedSlices that the tape gave, got EagerTensor"):
        optimizer.apply([tf.ones([1, 1]), tf.ones(1)], [table, dense])


def test_sok_sgd():
    table = sok.Variable([[1.0]])
    optimizer = sok.SGD(lr=2)
    assert isinstance(optimizer, sok.OptimizerWrapper)
    assert isinstance(optimizer, keras.optimizers.Optimizer)
    optimizer.apply_gradients([(kinds.slices([0], [[0.25]]), table)])
    assert float(table.numpy()[0, 0]) == 0.5
    optimizer.lr = 1.0
    assert float(optimizer.lr) == 1.0


# What is refused.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"update": "sometimes"}, "update must be one of local, global.*got 'sometimes'"),
        ({"sparse_reduction": "max"}, "sparse_reduction must be one of mean, sum, got 'max'"),
        ({"dense_reduction": "sum"}, "dense_reduction must be one of mean, None, got 'sum'"),
        ({"loss_scale": "static"}, 'loss_scale must be None, "dynamic" or a positive number'),
        ({"loss_scale": -1.0}, "positive number, got -1.0"),
    ],
)
def test_arguments_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        sok.OptimizerWrapper(keras.optimizers.SGD(0.1), **arguments)


def test_what_needs_dense_arrays_is_refused_with_what_to_do():
    with pytest.raises(ValueError, match=r"use_ema needs dense arrays .*construct Adam without it, and average"):
        sok.OptimizerWrapper(keras.optimizers.Adam(use_ema=True))
    with pytest.raises(ValueError, match=r"gradient_accumulation_steps needs dense .*use a larger batch"):
        sok.OptimizerWrapper(keras.optimizers.SGD(gradient_accumulation_steps=2))
    with pytest.raises(ValueError, match="To bound rows, pass max_norm"):
        sok.DynamicVariable(2, constraint=keras.constraints.NonNeg())
    for option in ("embeddings_regularizer", "embeddings_constraint"):
        with pytest.raises(ValueError, match="Use weight_decay in the optimizer, max_norm"):
            sok.layers.DistributedEmbedding(2, **{option: "l2"})


def test_bare_optimizers_and_double_wraps_are_refused():
    table = sok.Variable([[1.0]])
    for optimizer in (keras.optimizers.Adam(), tf_keras.optimizers.Adam(), LEGACY.Adam()):
        with pytest.raises((TypeError, AttributeError), match=r"sok\.OptimizerWrapper"):
            optimizer.apply_gradients([(kinds.slices([0], [[1]]), table)])
    with pytest.raises(ValueError, match="wrap it once"):
        sok.OptimizerWrapper(sok.OptimizerWrapper("adam"))
