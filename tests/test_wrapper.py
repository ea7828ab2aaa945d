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
from world import ON_GPU

import sok

LEGACY = tf_keras.optimizers.legacy
ROWS, WIDTH = 6, 3


def _slices(ids, gradients):
    return tf.IndexedSlices(tf.constant(gradients, tf.float32), tf.constant(ids, tf.int64))


def _exported(table):
    ids, rows = sok.export(table)
    return dict(zip(ids.numpy().tolist(), rows.numpy(), strict=True))


class Pair:
    """A table and a dense variable, and beside them the table's rows as a dense variable under the bare
    optimizer: with update="global" both must stay equal."""

    def __init__(self, make, rng, **wrapper):
        values = rng.normal(size=(ROWS, WIDTH)).astype(np.float32)
        self.table, _ = kinds.table_of(dict(enumerate(values)))
        self.other = keras.Variable(np.ones(4, np.float32), name="bias")
        self.optimizer = sok.OptimizerWrapper(make(), "global", **wrapper)
        self.dense = keras.Variable(values)
        self.dense_other = keras.Variable(np.ones(4, np.float32), name="bias")
        self.dense_optimizer = make()
        self.rng = rng

    def step(self, scale=1.0):
        ids = self.rng.integers(0, ROWS, 8)
        gradients = scale * self.rng.normal(size=(8, WIDTH)).astype(np.float32)
        other = tf.constant(scale * self.rng.normal(size=4), tf.float32)
        summed = np.zeros((ROWS, WIDTH), np.float32)
        np.add.at(summed, ids, gradients)
        self.optimizer.apply_gradients([(_slices(ids, gradients), self.table), (tf.identity(other), self.other)])
        self.dense_optimizer.apply([tf.constant(summed), other], [self.dense, self.dense_other])

    def check(self):
        # A GPU adds the gradients of a row as they arrive.
        tolerance = {"rtol": 2e-4, "atol": 2e-5} if ON_GPU else {"rtol": 2e-5, "atol": 2e-6}
        kinds.assert_rows(_exported(self.table), dict(enumerate(self.dense.numpy())), **tolerance)
        np.testing.assert_allclose(self.other.numpy(), self.dense_other.numpy(), rtol=2e-5, atol=2e-6)
        assert int(self.optimizer.iterations) == int(self.dense_optimizer.iterations)


# Hyper-parameters that Keras has, against Keras.


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"clipvalue": 0.5},
        {"clipnorm": 0.7},
        {"global_clipnorm": 0.9},
        {"global_clipnorm": 1e6},
        {"weight_decay": 0.3},
        {"loss_scale_factor": 4.0},
        {"loss_scale_factor": 4.0, "clipvalue": 0.1},
        {"loss_scale_factor": 4.0, "clipnorm": 0.2},
        {"loss_scale_factor": 4.0, "global_clipnorm": 0.2},
        {"learning_rate": keras.optimizers.schedules.ExponentialDecay(0.5, 2, 0.3)},
        {"learning_rate": lambda: 0.25},
    ],
    ids=lambda options: "-".join(options),
)
def test_options_hold_for_tables(options, rng):
    options = {"learning_rate": 0.1, **options}
    pair = Pair(lambda: keras.optimizers.Adam(**options), rng)
    for _ in range(4):
        pair.step(options.get("loss_scale_factor", 1.0))
    pair.check()


def test_clipping_works_on_merged_rows():
    for option in ("clipnorm", "global_clipnorm"):
        table = sok.Variable([[0.0, 0.0], [0.0, 0.0]])
        optimizer = sok.OptimizerWrapper(keras.optimizers.SGD(1.0, **{option: 3.5}))
        optimizer.apply_gradients([(_slices([1, 1], [[3, 0], [4, 0]]), table)])
        np.testing.assert_allclose(table.numpy(), [[0, 0], [-3.5, 0]], rtol=1e-6)


def test_global_clipnorm_spans_tables_and_dense_variables():
    tables = [sok.Variable([[0.0]]), sok.Variable([[0.0]])]
    dense = keras.Variable([0.0])
    optimizer = sok.OptimizerWrapper(keras.optimizers.SGD(1.0, global_clipnorm=1.0))
    gradients = [_slices([0], [[2]]), _slices([0, 0], [[1], [2]]), tf.constant([6.0])]
    optimizer.apply(gradients, [*tables, dense])
    np.testing.assert_allclose([tables[0].numpy()[0, 0], tables[1].numpy()[0, 0]], [-2 / 7, -3 / 7], rtol=1e-6)
    np.testing.assert_allclose(dense.numpy(), [-6 / 7], rtol=1e-6)


@pytest.mark.parametrize("option", ["clipnorm", "global_clipnorm"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_clipping_does_not_spread_what_is_not_finite(option, bad):
    table = sok.Variable([[1.0], [1.0]])
    optimizer = sok.OptimizerWrapper(keras.optimizers.SGD(1.0, **{option: 1.0}))
    optimizer.apply_gradients([(_slices([0, 1], [[bad], [0.5]]), table)])
    rows = table.numpy()
    assert np.isnan(rows[0, 0])
    assert rows[1, 0] == 1.0


def test_learning_rate_is_assigned_during_training(rng):
    pair = Pair(lambda: keras.optimizers.Adagrad(0.1), rng)
    table = pair.table
    pair.optimizer.build([table, pair.other])
    step = tf.function(lambda *gradients: pair.optimizer.apply(gradients, [table, pair.other]))
    for rate in (0.1, 0.5, 0.0):
        pair.optimizer.learning_rate = rate
        assert float(pair.optimizer.learning_rate) == pytest.approx(rate)
        before = _exported(table)[0].copy()
        step(_slices([0], [[1, 1, 1]]), tf.zeros(4))
        assert np.array_equal(before, _exported(table)[0]) == (rate == 0.0)
    assert step.experimental_get_tracing_count() == 1


def test_exclude_from_weight_decay(rng):
    first, second, third = (sok.Variable([[1.0]], name=name) for name in ("first", "second", "third"))
    kept, decayed = keras.Variable([1.0], name="kept"), keras.Variable([1.0], name="decayed")
    optimizer = sok.OptimizerWrapper(keras.optimizers.SGD(0.1, weight_decay=1.0), per_table={"second": 0.2})
    optimizer.exclude_from_weight_decay(var_list=[first, kept], var_names=["sec"])
    zero = _slices([0], [[0]])
    optimizer.apply([zero, zero, zero, tf.zeros(1), tf.zeros(1)], [first, second, third, kept, decayed])
    values = [float(np.ravel(v.numpy())[0]) for v in (first, second, third, kept, decayed)]
    np.testing.assert_allclose(values, [1, 1, 0.9, 1, 0.9], rtol=1e-6)


def test_hyper_parameters_assigned_later_hold():
    table = sok.Variable([[1.0]])
    optimizer = sok.OptimizerWrapper(keras.optimizers.SGD(0.1))
    optimizer.inner_optimizer.momentum = 0.5
    for _ in range(2):
        optimizer.apply([_slices([0], [[1]])], [table])
    np.testing.assert_allclose(table.numpy(), [[0.75]], rtol=1e-6)


# Steps.


def test_iterations_advance_with_tables_only_and_with_an_empty_batch(run):
    table, dense = sok.Variable([[1.0]]), keras.Variable([1.0])
    optimizer = sok.OptimizerWrapper(keras.optimizers.Adam(0.1))
    optimizer.build([table, dense])
    run(lambda: optimizer.apply([_slices([0], [[1]])], [table]))
    run(lambda: optimizer.apply([_slices(np.zeros(0), np.zeros((0, 1)))], [table]))
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
    run(lambda: optimizer.apply([_slices([3], [[1]]), tf.ones(1)], [late, dense]))
    assert _exported(late) == {3: [0.5]}
    with pytest.raises(ValueError, match="Unknown variable"):
        optimizer.apply([tf.ones(1)], [keras.Variable([1.0])])


def test_gradients_without_variables_need_a_build():
    table = sok.Variable([[1.0]])
    optimizer = sok.OptimizerWrapper(keras.optimizers.SGD(0.5))
    with pytest.raises(ValueError, match=r"call optimizer.build\(variables\) first"):
        optimizer.apply([_slices([0], [[1]])])
    optimizer.build([table])
    optimizer.apply([_slices([0], [[1]])])
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
    optimizer.apply_gradients([(_slices([0], [[0.25]]), table)])
    assert float(table.numpy()[0, 0]) == 0.5
    optimizer.lr = 1.0
    assert float(optimizer.lr) == 1.0


# per_table.


def test_per_table_gives_a_table_its_own_optimizer_or_learning_rate():
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([0], [0.5, 0.25])
    tables = {name: sok.Variable([[1.0]], name=name) for name in ("a", "b", "c", "d", "rest")}
    optimizer = sok.OptimizerWrapper(
        keras.optimizers.SGD(0.1, momentum=0.5),
        per_table={
            tables["a"]: keras.optimizers.Adagrad(1.0, initial_accumulator_value=0.0, epsilon=0.0),
            "b": 0.3,
            "c": schedule,
            "d": keras.optimizers.SGD(1.0, clipvalue=0.5),
        },
    )
    expected = {"a": [0, -1 + 1 - 1 / np.sqrt(2)], "b": [0.7, 0.25], "c": [0.5, 0.0], "d": [0.5, 0.0]}
    expected |= {"rest": [0.9, 0.75]}
    for number in range(2):
        optimizer.apply([_slices([0], [[1]])] * 5, list(tables.values()))
        for name, table in tables.items():
            np.testing.assert_allclose(table.numpy()[0, 0], expected[name][number], rtol=1e-5, atol=1e-6)
    assert sorted(tables["b"].table.planes()) == ["momentum.momentum", "values"]
    assert sorted(tables["a"].table.planes()) == ["adagrad.accumulator", "values"]
    # A number has become an optimizer with a learning rate that can be assigned.
    optimizer.per_table["b"].learning_rate = 0.0
    optimizer.apply([_slices([0], [[1]])], [tables["b"]])
    np.testing.assert_allclose(tables["b"].numpy()[0, 0], 0.25 - 0.5 * 0.45, rtol=1e-5)


def test_per_table_errors():
    make = keras.optimizers.SGD
    table = sok.Variable([[1.0]], name="items")
    optimizer = sok.OptimizerWrapper(make(0.1), per_table={"itmes": 0.2})
    with pytest.raises(ValueError, match="per_table names itmes, but the tables are items"):
        optimizer.apply_gradients([(_slices([0], [[1]]), table)])
    with pytest.raises(ValueError, match="give it to the wrapped optimizer only"):
        sok.OptimizerWrapper(make(0.1), per_table={"items": make(0.1, global_clipnorm=1.0)})
    with pytest.raises(ValueError, match="loss_scale_factor spans all variables"):
        sok.OptimizerWrapper(make(0.1), per_table={"items": make(0.1, loss_scale_factor=2.0)})
    with pytest.raises(ValueError, match="cannot train tables with Nadam"):
        sok.OptimizerWrapper(make(0.1), per_table={"items": keras.optimizers.Nadam()})
    with pytest.raises(TypeError, match="use one Keras for both"):
        sok.OptimizerWrapper(tf_keras.optimizers.SGD(0.1), per_table={"items": LEGACY.SGD(0.1)})
    with pytest.raises(TypeError, match="keys are tables or their names, got 3"):
        sok.OptimizerWrapper(make(0.1), per_table={3: 0.2})
    # A learning rate of its own does not take a table out of the global norm.
    clipped = sok.OptimizerWrapper(make(1.0, global_clipnorm=1.0), per_table={"items": 0.5})
    clipped.apply_gradients([(_slices([0], [[4]]), table)])
    np.testing.assert_allclose(table.numpy(), [[0.5]])


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
            optimizer.apply_gradients([(_slices([0], [[1]]), table)])
    with pytest.raises(ValueError, match="wrap it once"):
        sok.OptimizerWrapper(sok.OptimizerWrapper("adam"))


# Inside Keras 3.


def _model(optimizer, name="table"):
    keras.utils.set_random_seed(3)
    table = sok.layers.DistributedEmbedding(4, seed=5, name=name)
    model = keras.Sequential([keras.Input((3,), dtype="int64"), table, keras.layers.Dense(1)])
    model.compile(optimizer, "mse")
    return model


def _data(seed=0, size=40):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 30, (size, 3)), rng.normal(size=(size, 1)).astype(np.float32)


def _fit(model, epochs=1, **kwargs):
    return model.fit(*_data(), batch_size=8, epochs=epochs, shuffle=False, verbose=0, **kwargs).history["loss"]


def test_callbacks_change_the_learning_rate():
    model = _model(sok.OptimizerWrapper(keras.optimizers.SGD(0.1)))
    schedule = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5)
    plateau = keras.callbacks.ReduceLROnPlateau("loss", factor=0.1, patience=0, min_delta=1e9)
    _fit(model, epochs=2, callbacks=[schedule])
    assert float(model.optimizer.learning_rate) == pytest.approx(0.025)
    _fit(model, epochs=2, callbacks=[plateau])
    assert float(model.optimizer.learning_rate) == pytest.approx(0.0025)


WRAPPERS = {
    "adam": lambda: sok.OptimizerWrapper(keras.optimizers.Adam(0.05)),
    "schedule": lambda: sok.OptimizerWrapper(
        keras.optimizers.Adagrad(keras.optimizers.schedules.ExponentialDecay(0.3, 3, 0.7)), "global"
    ),
    "scaled": lambda: sok.OptimizerWrapper(keras.optimizers.SGD(0.1, momentum=0.9), loss_scale="dynamic"),
    "fixed scale": lambda: sok.OptimizerWrapper(keras.optimizers.RMSprop(0.01), loss_scale=16),
    "per_table": lambda: sok.OptimizerWrapper(
        keras.optimizers.Adam(0.05), per_table={"table_table": sok.optimizers.RowWiseAdagrad(0.2)}
    ),
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_steps_after_loading_equal_those_of_an_uninterrupted_run(name, tmp_path):
    model = _model(WRAPPERS[name]())
    _fit(model)
    if model.optimizer.per_table:
        model.optimizer.per_table["table_table"].learning_rate = 0.1
    model.save(tmp_path / "m.keras")
    model.save_weights(tmp_path / "m.weights.h5")
    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(tmp_path / "checkpoint")
    expected = _fit(model, epochs=5)

    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert type(loaded.optimizer) is type(model.optimizer)
    assert loaded.optimizer.get_config() == {
        **model.optimizer.get_config(), "optimizer": loaded.optimizer.get_config()["optimizer"],
        "per_table": loaded.optimizer.get_config()["per_table"],
    }  # fmt: skip
    assert int(loaded.optimizer.iterations) == 5
    np.testing.assert_allclose(_fit(loaded, epochs=5), expected, rtol=1e-6)

    from_weights = _model(WRAPPERS[name]())
    from_weights.optimizer.build(from_weights.trainable_variables)
    from_weights.load_weights(tmp_path / "m.weights.h5")
    np.testing.assert_allclose(_fit(from_weights, epochs=5), expected, rtol=1e-6)

    restored = _model(WRAPPERS[name]())
    restored.optimizer.build(restored.trainable_variables)
    status = tf.train.Checkpoint(model=restored, optimizer=restored.optimizer).restore(checkpoint)
    status.assert_existing_objects_matched()
    np.testing.assert_allclose(_fit(restored, epochs=5), expected, rtol=1e-6)


def test_names_and_configs_are_optimizers_too():
    for optimizer in ("adam", keras.optimizers.serialize(keras.optimizers.Adam())):
        wrapper = sok.OptimizerWrapper(optimizer)
        assert isinstance(wrapper.inner_optimizer, keras.optimizers.Adam)
    assert keras.optimizers.get(wrapper) is wrapper
    model = _model(wrapper)
    _fit(model)
    assert {v.name for v in wrapper.variables} >= {"iteration", "learning_rate"}


# tf_keras.


@pytest.mark.parametrize("loss_scale", [None, "dynamic", 8.0])
@pytest.mark.parametrize("module", [tf_keras.optimizers, LEGACY], ids=["new", "legacy"])
def test_wrappers_belong_to_the_keras_of_the_optimizer(module, loss_scale, tmp_path):
    optimizer = sok.OptimizerWrapper(module.SGD(0.1), loss_scale=loss_scale)
    assert isinstance(optimizer, sok.OptimizerWrapper)
    assert isinstance(optimizer, module.Optimizer)
    assert isinstance(optimizer, tf_keras.mixed_precision.LossScaleOptimizer) == (loss_scale is not None)
    layer = tf_keras.layers.Dense(1, kernel_initializer="ones")
    layer.build([None, 2])
    layer3 = keras.layers.Dense(1, kernel_initializer="ones")
    layer3.build([None, 2])
    table = sok.DynamicVariable(2, initializer="ones")
    variables = [table, *layer.trainable_variables, *layer3.trainable_variables]

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            rows = sok.lookup_sparse(table, tf.constant([[1, 2], [2, 2]]))
            loss = tf.reduce_sum(layer(rows) + layer3(rows))
            scaled = optimizer.get_scaled_loss(loss) if loss_scale else loss
        gradients = tape.gradient(scaled, variables)
        if loss_scale:
            gradients = optimizer.get_unscaled_gradients(gradients)
        optimizer.apply_gradients(zip(gradients, variables))

    step()
    # Kernels get the sum of the rows, 2; rows twice their weight in the batch.
    np.testing.assert_allclose(layer.kernel.numpy(), [[0.8], [0.8]], rtol=1e-6)
    np.testing.assert_allclose(layer3.kernel.numpy(), [[0.8], [0.8]], rtol=1e-6)
    kinds.assert_rows(_exported(table), {1: [0.9, 0.9], 2: [0.7, 0.7]}, rtol=1e-6)
    assert int(optimizer.iterations) == 1
    optimizer.learning_rate = 0.0
    step()
    kinds.assert_rows(_exported(table), {1: [0.9, 0.9], 2: [0.7, 0.7]}, rtol=1e-6)

    copy = type(optimizer).from_config(optimizer.get_config())
    assert float(copy.learning_rate) == 0.0
    assert type(copy) is type(optimizer)
    path = tf.train.Checkpoint(optimizer=optimizer, table=table).save(tmp_path / "c")
    optimizer.iterations.assign(7)
    tf.train.Checkpoint(optimizer=optimizer, table=table).restore(path).assert_consumed()
    assert int(optimizer.iterations) == 2


@pytest.mark.parametrize(
    "make",
    [
        lambda module, **kw: module.SGD(0.1, momentum=0.9, **kw),
        lambda module, **kw: module.SGD(0.1, momentum=0.9, nesterov=True, **kw),
        lambda module, **kw: module.Adagrad(0.1, initial_accumulator_value=0.0, epsilon=0.3, **kw),
        lambda module, **kw: module.RMSprop(0.1, epsilon=0.3, **kw),
        lambda module, **kw: module.RMSprop(0.1, epsilon=0.3, momentum=0.5, **kw),
        lambda module, **kw: module.RMSprop(0.1, epsilon=0.3, centered=True, **kw),
        lambda module, **kw: module.RMSprop(0.1, epsilon=0.3, centered=True, momentum=0.5, **kw),
        lambda module, **kw: module.Adam(0.1, epsilon=0.3, **kw),
        lambda module, **kw: module.Adam(0.1, epsilon=0.3, amsgrad=True, **kw),
        lambda module, **kw: module.Adamax(0.1, epsilon=0.3, **kw),
        lambda module, **kw: module.Adadelta(0.5, epsilon=0.3, **kw),
        lambda module, **kw: module.Ftrl(0.1, l1_regularization_strength=0.1, beta=0.2, **kw),
        lambda module, **kw: module.Ftrl(0.1, l2_shrinkage_regularization_strength=0.1, **kw),
        lambda module, **kw: module.Adam(0.1, clipnorm=0.5, **kw),
        lambda module, **kw: module.SGD(0.1, global_clipnorm=0.5, **kw),
        lambda module, **kw: module.SGD(0.1, clipvalue=0.5, **kw),
        lambda module, **kw: module.SGD(tf_keras.optimizers.schedules.InverseTimeDecay(0.5, 1, 0.5), **kw),
    ],
)
@pytest.mark.parametrize("module", [tf_keras.optimizers, LEGACY], ids=["new", "legacy"])
def test_formulas_of_tf_keras(module, make, rng):
    _check_against_tf_keras(lambda: make(module), rng)


@pytest.mark.parametrize(
    "make",
    [
        lambda: LEGACY.SGD(0.5, decay=0.5),
        lambda: LEGACY.SGD(0.5, clipvalue=0.7, clipnorm=0.9),
        lambda: LEGACY.SGD(0.5, clipvalue=0.7, global_clipnorm=0.9),
        lambda: tf_keras.optimizers.Adam(0.1, epsilon=0.5, adaptive_epsilon=True),
        lambda: tf_keras.optimizers.AdamW(0.1, weight_decay=0.5),
    ],
)
def test_options_of_tf_keras(make, rng):
    _check_against_tf_keras(make, rng)


def _check_against_tf_keras(make, rng):
    values = rng.normal(size=(ROWS, WIDTH)).astype(np.float32)
    table, dense = sok.Variable(values), tf.Variable(values)
    other, dense_other = tf.Variable(tf.ones(4)), tf.Variable(tf.ones(4))
    optimizer, bare = sok.OptimizerWrapper(make(), "global"), make()
    for _ in range(4):
        ids = rng.integers(0, ROWS, 8)
        gradients = rng.normal(size=(8, WIDTH)).astype(np.float32)
        summed = np.zeros((ROWS, WIDTH), np.float32)
        np.add.at(summed, ids, gradients)
        gradient = tf.constant(rng.normal(size=4), tf.float32)
        optimizer.apply_gradients([(_slices(ids, gradients), table), (gradient, other)])
        bare.apply_gradients([(tf.constant(summed), dense), (gradient, dense_other)])
    np.testing.assert_allclose(table.numpy(), dense.numpy(), rtol=2e-5, atol=5e-6)
    np.testing.assert_allclose(other.numpy(), dense_other.numpy(), rtol=2e-5, atol=2e-6)
    assert int(optimizer.iterations) == int(bare.iterations) == 4


@pytest.mark.parametrize("module", [tf_keras.optimizers, LEGACY], ids=["new", "legacy"])
def test_minimize_of_tf_keras(module):
    table = sok.Variable([[1.0], [1.0]])
    layer = keras.layers.Dense(1, kernel_initializer="ones")
    layer.build([None, 1])
    optimizer = sok.OptimizerWrapper(module.SGD(0.5))
    optimizer.minimize(lambda: tf.reduce_sum(layer(sok.lookup_sparse(table, tf.constant([1])))), [table, layer.kernel])
    np.testing.assert_allclose(table.numpy(), [[1.0], [0.5]])
    np.testing.assert_allclose(layer.kernel.numpy(), [[0.5]])


def test_exclude_from_weight_decay_of_tf_keras():
    first, second = sok.Variable([[1.0]], name="first"), sok.Variable([[1.0]], name="second")
    optimizer = sok.OptimizerWrapper(tf_keras.optimizers.SGD(0.1, weight_decay=1.0))
    optimizer.exclude_from_weight_decay(var_names=["fir"])
    optimizer.apply_gradients([(_slices([0], [[0]]), table) for table in (first, second)])
    np.testing.assert_allclose([first.numpy()[0, 0], second.numpy()[0, 0]], [1.0, 0.9], rtol=1e-6)


def test_per_table_of_legacy_optimizers(tmp_path):
    table = sok.Variable([[1.0]], name="items")
    optimizer = sok.OptimizerWrapper(LEGACY.SGD(0.1), per_table={"items": LEGACY.Adagrad(0.5)})
    optimizer.apply_gradients([(_slices([0], [[1]]), table)])
    np.testing.assert_allclose(table.numpy(), [[1 - 0.5 / np.sqrt(1.1)]], rtol=1e-5)
    optimizer.per_table["items"].learning_rate = 0.25
    path = tf.train.Checkpoint(optimizer=optimizer).save(tmp_path / "c")
    optimizer.per_table["items"].learning_rate = 0.75
    tf.train.Checkpoint(optimizer=optimizer).restore(path)
    assert float(optimizer.per_table["items"].learning_rate) == 0.25
