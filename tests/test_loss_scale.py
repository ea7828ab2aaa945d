# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""The loss scale inside of the wrapper: one flag for dense gradients and those of tables."""

import keras
import kinds
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from world import ON_GPU

import sok

LINE = r'sok\.OptimizerWrapper\(keras\.optimizers\.Adam\(\.\.\.\), loss_scale="dynamic"\)'


def _everything(optimizer, dense, tables):
    state = [np.asarray(v) for v in (dense, *optimizer.inner_optimizer.variables)]
    for table in tables:
        held = sok.check_out(table)
        order = np.argsort(held["ids"])
        state += [held[name][order] for name in sorted(held)]
    return state


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("place", ["dense", "table", "other table"])
def test_one_bad_gradient_anywhere_suppresses_the_whole_step(run, place, bad):
    tables = [sok.DynamicVariable(2, initializer="ones", name=name) for name in ("table", "other table")]
    dense = keras.Variable(np.ones(3, np.float32))
    optimizer = sok.OptimizerWrapper(keras.optimizers.Adam(0.1), loss_scale="dynamic")
    optimizer.build([*tables, dense])

    def step(*gradients):
        slices = [kinds.slices([1, 2], gradients[0]), kinds.slices([1, 1], gradients[1])]
        optimizer.apply([*slices, gradients[2]], [*tables, dense])

    good = [tf.ones([2, 2]), tf.ones([2, 2]), tf.ones(3)]
    run(step, *good)
    before = _everything(optimizer, dense, tables)
    gradients = list(good)
    at = ["table", "other table", "dense"].index(place)
    gradients[at] = tf.tensor_scatter_nd_update(good[at], [[1, 1]] if at < 2 else [[2]], [bad])
    run(step, *gradients)
    after = _everything(optimizer, dense, tables)
    for x, y in zip(before, after, strict=True):
        np.testing.assert_array_equal(x, y)
    assert int(optimizer.iterations) == 1
    assert float(optimizer.dynamic_scale) == 2.0**14
    run(step, *good)
    assert int(optimizer.iterations) == 2
    assert float(optimizer.dynamic_scale) == 2.0**14
    changed = _everything(optimizer, dense, tables)
    # The variable, and of each table the states m and v and the values; ids stay.
    for i in (0, -1, -3, -4, -5, -7, -8):
        assert not np.array_equal(before[i], changed[i])


def test_a_suppressed_step_inserts_no_key_and_no_state():
    table = sok.DynamicVariable(2)
    optimizer = sok.OptimizerWrapper(keras.optimizers.Adam(0.1), loss_scale="dynamic")
    optimizer.apply([kinds.slices([5], [[1, np.inf]])], [table])
    assert table.size == [0, 2]
    # A GPU gives the table its states before it can know that the step is suppressed.
    assert ON_GPU or list(table.table.planes()) == ["values"]
    assert int(optimizer.iterations) == 0


def test_scales_follow_keras(run):
    """Dense gradients, with and without overflow, beside Keras's own LossScaleOptimizer."""
    rng = np.random.default_rng(5)
    values = rng.normal(size=(4, 2)).astype(np.float32)
    table, dense = sok.Variable(values), keras.Variable(values)

    def make():
        return keras.optimizers.SGD(0.1, momentum=0.9, global_clipnorm=0.3)

    optimizer = sok.OptimizerWrapper(make(), "global", loss_scale="dynamic")
    bare = keras.optimizers.LossScaleOptimizer(make(), dynamic_growth_steps=3)
    optimizer.dynamic_growth_steps = 3
    optimizer.build([table])
    bare.build([dense])
    for overflow in (0, 0, 0, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0):
        gradient = rng.normal(size=(4, 2)) * float(bare.dynamic_scale)
        gradient = tf.constant(np.where(overflow, np.inf, gradient), tf.float32)
        run(lambda g: optimizer.apply([tf.IndexedSlices(g, tf.range(4))], [table]), gradient)
        bare.apply([gradient], [dense])
        assert float(optimizer.dynamic_scale) == float(bare.dynamic_scale)
        assert int(optimizer.step_counter) == int(bare.step_counter)
        assert int(optimizer.iterations) == int(bare.iterations)
    np.testing.assert_allclose(table.numpy(), dense.numpy(), rtol=2e-5, atol=1e-6)


def test_loss_and_gradients_carry_the_scale():
    for loss_scale, expected in (("dynamic", 2.0**15), (64, 64.0)):
        table = sok.Variable([[1.0]])
        optimizer = sok.OptimizerWrapper(keras.optimizers.SGD(0.5), loss_scale=loss_scale)
        assert float(optimizer.scale_loss(tf.constant(1.0))) == expected
        optimizer.build([table])
        with tf.GradientTape() as tape:
            loss = optimizer.scale_loss(tf.reduce_sum(sok.lookup_sparse(table, tf.constant([0]))))
        gradient = tape.gradient(loss, table)
        np.testing.assert_allclose(gradient.values.numpy(), [[expected]])
        optimizer.apply([gradient], [table])
        np.testing.assert_allclose(table.numpy(), [[0.5]])


def test_a_fixed_scale_passes_on_what_is_not_finite():
    table = sok.Variable([[1.0], [1.0]])
    optimizer = sok.OptimizerWrapper(keras.optimizers.SGD(1.0), loss_scale=2.0)
    optimizer.apply([kinds.slices([0, 1], [[np.nan], [1]])], [table])
    np.testing.assert_array_equal(table.numpy(), [[np.nan], [0.5]])


def test_the_flag_reaches_the_update_without_a_branch():
    table, dense = sok.DynamicVariable(2), keras.Variable(np.ones(3, np.float32))
    optimizer = sok.OptimizerWrapper(keras.optimizers.Adam(0.1), loss_scale="dynamic")
    optimizer.build([table, dense])

    @tf.function
    def step(values, gradient):
        optimizer.apply([tf.IndexedSlices(values, tf.constant([1, 2], tf.int64)), gradient], [table, dense])

    graph = step.get_concrete_function(tf.ones([2, 2]), tf.ones(3)).graph
    # Fused: the flag does not need the rows' gradients.
    (update,) = [op for op in graph.get_operations() if op.type == "Sok>MergeUpdate"]
    assert all(op.graph is graph for op in (update, update.inputs[-1].op))
    assert not [op for op in graph.get_operations() if op.type == "Sok>Merge"]
    branches = [op for op in graph.get_operations() if op.type in ("If", "StatelessIf")]
    assert len(branches) == 1


def test_both_kinds_are_loss_scale_optimizers_that_compile_does_not_wrap():
    keras.config.set_dtype_policy("mixed_float16")
    for loss_scale in ("dynamic", 128.0):
        optimizer = sok.OptimizerWrapper(keras.optimizers.Adam(0.1), loss_scale=loss_scale)
        assert isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        assert isinstance(optimizer, sok.OptimizerWrapper)
        model = keras.Sequential([keras.Input((2,), dtype="int64"), sok.layers.DistributedEmbedding(2)])
        model.compile(optimizer, "mse")
        assert model.optimizer is optimizer
        model.fit(np.arange(8).reshape(4, 2), np.ones((4, 2)), verbose=0)
        assert int(optimizer.iterations) == 1


def test_a_loss_scale_from_outside_is_an_error_that_shows_the_line():
    for loss_scale in (None, "dynamic", 2.0):
        wrapper = sok.OptimizerWrapper(keras.optimizers.SGD(0.1), loss_scale=loss_scale)
        with pytest.raises(ValueError, match=LINE):
            keras.optimizers.LossScaleOptimizer(wrapper)
    with pytest.raises(ValueError, match=LINE):
        sok.OptimizerWrapper(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)))
    for module in (tf_keras.optimizers, tf_keras.optimizers.legacy):
        with pytest.raises(ValueError, match=LINE.replace("keras", "tf_keras")):
            tf_keras.mixed_precision.LossScaleOptimizer(sok.OptimizerWrapper(module.SGD(0.1)))
        with pytest.raises(ValueError, match=LINE):
            sok.OptimizerWrapper(tf_keras.mixed_precision.LossScaleOptimizer(module.SGD(0.1)))
    keras.config.set_dtype_policy("mixed_float16")
    model = keras.Sequential([keras.Input((2,), dtype="int64"), sok.layers.DistributedEmbedding(2)])
    with pytest.raises(ValueError, match=LINE):
        model.compile(sok.OptimizerWrapper(keras.optimizers.SGD(0.1)), "mse")
    model.compile(sok.OptimizerWrapper(keras.optimizers.SGD(0.1)), "mse", auto_scale_loss=False)


def test_a_loss_scale_is_given_once():
    with pytest.raises(ValueError, match="construct the optimizer without loss_scale_factor"):
        sok.OptimizerWrapper(keras.optimizers.SGD(0.1, loss_scale_factor=2.0), loss_scale="dynamic")


@pytest.mark.parametrize("module", [tf_keras.optimizers, tf_keras.optimizers.legacy], ids=["new", "legacy"])
def test_dynamic_scales_of_tf_keras(run, module):
    table, dense = sok.Variable([[1.0]]), tf.Variable([1.0])
    optimizer = sok.OptimizerWrapper(module.SGD(0.5), loss_scale="dynamic")

    def step(sparse, gradient):
        optimizer.apply_gradients([(tf.IndexedSlices(sparse, [0]), table), (gradient, dense)])

    for sparse, gradient, value, scale in (
        (1.0, 1.0, 0.5, 2.0**15),
        (np.inf, 1.0, 0.5, 2.0**14),
        (1.0, np.nan, 0.5, 2.0**13),
        (1.0, 1.0, 0.0, 2.0**13),
    ):
        run(step, tf.constant([[sparse]], tf.float32), tf.constant([gradient], tf.float32))
        assert [float(table.numpy()[0, 0]), float(dense[0])] == [value, value]
        assert float(optimizer.loss_scale) == scale
    # tf_keras counts the steps that it leaves out.
    assert int(optimizer.iterations) == 4


def test_settings_of_the_scale_are_saved():
    optimizer = sok.OptimizerWrapper(keras.optimizers.SGD(0.1), loss_scale="dynamic")
    optimizer.initial_scale = 4.0
    optimizer.dynamic_growth_steps = 7
    copy = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert (copy.initial_scale, copy.dynamic_growth_steps) == (4.0, 7)
    copy.build([])
    assert float(copy.dynamic_scale) == 4.0
