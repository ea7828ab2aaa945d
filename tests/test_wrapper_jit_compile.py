# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""The wrapper's jit_compile: one program for the step of all dense variables, which does what their ops do."""

import pickle

import keras
import kinds
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import sok

SHAPES = [(3, 4), (4,), ()]
SCHEDULE = keras.optimizers.schedules.ExponentialDecay(0.5, 2, 0.3)
OPTIMIZERS = {
    "SGD": lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "Adam": lambda: keras.optimizers.Adam(SCHEDULE),
    "AdamW": lambda: keras.optimizers.AdamW(0.1, weight_decay=0.3),
    "Adagrad": lambda: keras.optimizers.Adagrad(0.1, clipnorm=0.3),
    "RMSprop": lambda: keras.optimizers.RMSprop(0.1, momentum=0.9, centered=True, global_clipnorm=0.5),
    "Ftrl": lambda: keras.optimizers.Ftrl(0.1, l1_regularization_strength=0.01, clipvalue=0.2),
    "RowWiseAdagrad": lambda: sok.optimizers.RowWiseAdagrad(0.1),
}


class Training:
    """A table and dense variables under a wrapper, and gradients that are the same every time."""

    def __init__(self, optimizer, jit_compile, **wrapper):
        self.optimizer = sok.OptimizerWrapper(optimizer, jit_compile=jit_compile, **wrapper)
        self.table = sok.DynamicVariable(2, initializer="ones")
        self.dense = [keras.Variable(np.full(shape, 0.5)) for shape in SHAPES]
        self.rng = np.random.default_rng(5)

    def gradients(self, scale=1.0):
        return [tf.constant(scale * self.rng.normal(size=shape), tf.float32) for shape in [(2, 2), *SHAPES]]

    def apply(self, of_rows, *of_dense):
        self.optimizer.apply([kinds.slices([1, 2], of_rows), *of_dense], [self.table, *self.dense])

    def state(self):
        """All but what is the loss scale's."""
        held = sok.check_out(self.table)
        rows = [held[name][np.argsort(held["ids"])] for name in sorted(held)]
        return [*(v.numpy() for v in (*self.dense, *self.optimizer.inner_optimizer.variables)), *rows]


def check_same(train, make, **wrapper):
    """`train(training)` leaves the same behind with one program and without."""
    results = []
    for jit_compile in (False, True):
        training = Training(make(), jit_compile, **wrapper)
        train(training)
        results.append(training.state())
    for g, w in zip(*results, strict=True):
        np.testing.assert_allclose(g, w, rtol=2e-5, atol=2e-6)


def programs(graph):
    """The types of ops in all functions that XLA must compile, and of those in a graph and its branches outside."""
    definition = graph.as_graph_def()
    functions = {f.signature.name: f.node_def for f in definition.library.function}
    nodes = [*definition.node, *(node for name in functions for node in functions[name])]
    compiled = [node.attr["f"].func.name for node in nodes if node.attr["_XlaMustCompile"].b]
    inside = [{node.op for node in functions.pop(name)} for name in compiled]
    return inside, {node.op for part in (definition.node, *functions.values()) for node in part}


@pytest.mark.parametrize("loss_scale", [None, 2.0, "dynamic"])
def test_xla_compiles_all_of_the_dense_step(loss_scale):
    of_a_step = {"Sqrt", "Square", "AssignSubVariableOp", "AssignAddVariableOp"}
    for jit_compile in (False, True):
        training = Training("adam", jit_compile, loss_scale=loss_scale)
        inside, outside = programs(tf.function(training.apply).get_concrete_function(*training.gradients()).graph)
        assert [types >= of_a_step for types in inside] == [True] * jit_compile
        assert outside & of_a_step == (set() if jit_compile else of_a_step)
        assert "Sok>MergeUpdate" in outside


@pytest.mark.parametrize("loss_scale", [None, 2.0, "dynamic"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_do_the_same(name, loss_scale):
    def train(training):
        training.optimizer.exclude_from_weight_decay(var_list=[training.dense[0]])
        step = tf.function(training.apply)
        for _ in range(4):
            step(*training.gradients({None: 1.0, "dynamic": 2.0**15}.get(loss_scale, loss_scale)))
        assert int(training.optimizer.iterations) == 4

    check_same(train, OPTIMIZERS[name], loss_scale=loss_scale)


def test_a_bad_gradient_changes_nothing():
    def train(training):
        step = tf.function(training.apply)
        for bad in (0.0, np.inf, 0.0, np.nan):
            before, gradients = training.state(), training.gradients(2.0**14)
            step(*gradients[:-1], gradients[-1] + bad)
            unchanged = [np.array_equal(*pair) for pair in zip(before, training.state())]
            assert all(unchanged) if bad else not any(unchanged[: len(SHAPES)])
        assert [int(training.optimizer.iterations), float(training.optimizer.dynamic_scale)] == [2, 2.0**13]

    check_same(train, OPTIMIZERS["Adagrad"], loss_scale="dynamic")


def test_what_is_assigned_to_the_optimizer_holds(run):
    """In eager steps, which do not become programs, and in functions that are traced later."""
    # A variable: an op whose inputs are all constants would be computed once, on the CPU.
    rate = tf.Variable(0.3)

    def train(training):
        step = tf.function(training.apply)
        for value in (0.1, 0.5):
            training.optimizer.learning_rate = value
            step(*training.gradients())
        for name, value in (("momentum", 0.5), ("learning_rate", SCHEDULE), ("learning_rate", rate.read_value)):
            setattr(training.optimizer.inner_optimizer, name, value)
            run(training.apply, *training.gradients())
        rate.assign(0.15)
        run(training.apply, *training.gradients())
        rate.assign(0.3)

    check_same(train, OPTIMIZERS["SGD"])


def test_variables_without_a_gradient_and_changing_ones(run):
    def train(training):
        training.optimizer.build(training.dense)
        for places in ([0, 1], [2, 0], [1], [0, 1, 2]):
            gradients = [training.gradients()[1 + place] for place in places]
            run(lambda *g, p=places: training.optimizer.apply(g, [training.dense[i] for i in p]), *gradients)
        with pytest.warns(UserWarning, match="Gradients do not exist for variables"):
            run(lambda g: training.optimizer.apply([None, g, None], training.dense), training.gradients()[2])

    check_same(train, lambda: keras.optimizers.Adam(0.1))


@pytest.mark.parametrize("batch", [6, None])
def test_sparse_gradients(batch):
    """Are in the program if it is the same one for every batch."""
    weights = []
    for jit_compile in (False, True):
        layer = keras.layers.Embedding(9, 2, embeddings_initializer="ones")
        layer.build()
        optimizer = sok.OptimizerWrapper(keras.optimizers.Adam(0.1, clipnorm=0.5), jit_compile=jit_compile)

        @tf.function(input_signature=[tf.TensorSpec([batch], tf.int64)])
        def step(ids, layer=layer, optimizer=optimizer):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(layer(ids) ** 2)
            optimizer.apply(tape.gradient(loss, layer.trainable_weights), layer.trainable_weights)

        inside, _ = programs(step.get_concrete_function().graph)
        assert len(inside) == (jit_compile and batch is not None)
        for size in (6, batch or 3):
            step(tf.range(size, dtype=tf.int64) // 2)
        weights.append(layer.get_weights()[0])
    np.testing.assert_allclose(*weights, rtol=1e-5)


def test_under_a_strategy_the_step_stays_as_it_is():
    strategy = tf.distribute.MirroredStrategy(["/CPU:0"])  # whatever the device: it is about replicas
    with strategy.scope():
        dense = keras.Variable([1.0, 2.0])
        optimizer = sok.OptimizerWrapper(keras.optimizers.SGD(0.5), jit_compile=True)
        optimizer.build([dense])
    tf.function(lambda: strategy.run(lambda: optimizer.apply([tf.ones(2)], [dense])))()
    np.testing.assert_allclose(dense.numpy(), [0.5, 1.5], rtol=1e-6)


def test_models_are_saved_with_it():
    ids, labels = np.arange(8)[:, None] % 3, np.ones((8, 1), np.float32)
    results = []
    for jit_compile in (False, True):
        keras.utils.set_random_seed(1)
        embedding = sok.layers.DistributedEmbedding(2, initializer="ones")
        model = keras.Sequential([keras.Input((1,), dtype="int64"), embedding, keras.layers.Dense(1)])
        model.compile(sok.OptimizerWrapper("adam", jit_compile=jit_compile, loss_scale="dynamic"), "mse")
        history = model.fit(ids, labels, verbose=0).history["loss"]
        model = pickle.loads(pickle.dumps(model))  # by way of a .keras file
        assert model.optimizer.get_config()["jit_compile"] is jit_compile
        history += model.fit(ids, labels, verbose=0).history["loss"]
        results.append([*history, *(v.numpy() for v in model.optimizer.variables)])
    for g, w in zip(*results, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-7)


def test_what_it_may_be():
    with pytest.raises(ValueError, match="jit_compile must be True or False, got 'yes'"):
        sok.OptimizerWrapper("adam", jit_compile="yes")
    for module in (tf_keras.optimizers, tf_keras.optimizers.legacy):
        with pytest.raises(ValueError, match="jit_compile is for optimizers of Keras 3: give it to the optimizer"):
            sok.OptimizerWrapper(module.SGD(0.1), jit_compile=True)
