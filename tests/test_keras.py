# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables inside Keras models: every style of model, of compilation and of input."""

import gc

import keras
import kinds
import numpy as np
import pytest
import tensorflow as tf
from keras_models import (
    HOTNESS,
    ROWS,
    STYLES,
    WIDTH,
    Subclassed,
    compiled,
    examples,
    functional,
    plain_keras,
    prepare,
    random_rows,
)

import sok


@pytest.fixture
def data(rng):
    return examples(rng)


@pytest.fixture
def rows(rng):
    return random_rows(rng)


@pytest.mark.parametrize(
    "compilation",
    [{}, {"run_eagerly": True}, {"jit_compile": True}, {"steps_per_execution": 3}],
    ids=lambda kwargs: next(iter(kwargs), "default"),
)
@pytest.mark.parametrize("style", STYLES)
def test_fit_follows_a_plain_keras_embedding(data, rows, style, compilation):
    """Every style and compilation, with a last batch that is not full, jit forced included."""
    model, table = prepare(STYLES[style](sok.layers.DistributedEmbedding(WIDTH)), data, rows)
    if compilation.get("jit_compile"):
        with pytest.warns(UserWarning, match="doesn't support `jit_compile=True`"):
            model.compile(sok.SGD(0.1), "mse", **compilation)
    else:
        model.compile(sok.SGD(0.1), "mse", **compilation)
    history = model.fit(*data, batch_size=16, epochs=2, shuffle=False, verbose=0).history["loss"]
    expected, expected_rows = plain_keras(data, rows, 2)
    np.testing.assert_allclose(history, expected, rtol=1e-5)
    learned = kinds.export_as_dict(table)
    np.testing.assert_allclose(np.stack([learned[i] for i in range(ROWS)]), expected_rows, rtol=1e-4, atol=1e-6)
    assert int(model.optimizer.iterations) == 10
    assert model.evaluate(*data, verbose=0) > 0
    assert model.predict(data[0], verbose=0).shape == (70, 1)


class InInit(sok.layers.TableMixin, keras.layers.Layer):
    """A user's own layer around the functions of a custom loop."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_jit = False
        self.table = sok.DynamicVariable(WIDTH, name="own")

    def call(self, inputs, training=None):
        return sok.lookup_sparse(self.table, inputs, training=bool(training))


class InBuild(InInit):
    def __init__(self, **kwargs):
        keras.layers.Layer.__init__(self, **kwargs)
        self.supports_jit = False

    def build(self, input_shape):
        self.table = sok.DynamicVariable(WIDTH, name="own")
        self.built = True


@pytest.mark.parametrize("run_eagerly", [False, True])
@pytest.mark.parametrize("cls", [InInit, InBuild])
@pytest.mark.parametrize("style", ["sequential", "subclassed"])
def test_where_the_table_is_created(data, rows, cls, style, run_eagerly):
    model, table = prepare(STYLES[style](cls()), data, rows)
    model.compile(sok.SGD(0.1), "mse", run_eagerly=run_eagerly)
    history = model.fit(*data, batch_size=16, shuffle=False, verbose=0).history["loss"]
    np.testing.assert_allclose(history, plain_keras(data, rows, 1)[0], rtol=1e-5)
    assert sum(v is table for v in model.trainable_variables) == 1


def test_table_without_a_first_call(data):
    """`fit` on a model that was never called: the table appears in a scope of Keras's own."""
    for cls in (InInit, InBuild):
        model = Subclassed(cls())
        model.compile(sok.SGD(0.1), "mse")
        model.fit(*data, verbose=0)
        assert model.embedding.table.size == [len(np.unique(data[0])), WIDTH]


def test_table_created_inside_call(data):
    """Keras refuses state that appears in `call`, of any layer, and says where it belongs."""

    class InCall(keras.Model):
        embedding = None

        def call(self, inputs, training=None):
            if self.embedding is None:
                self.embedding = sok.layers.DistributedEmbedding(WIDTH)
            return self.embedding(inputs, training=training)

    with pytest.raises(ValueError, match="All state must be created in the `__init__"):
        InCall()(tf.constant(data[0]))


@pytest.mark.parametrize("kind", ["ragged32", "ragged64", "sparse", "masked"])
@pytest.mark.parametrize("style", ["functional", "subclassed"])
def test_input_kinds_in_fit(rng, kind, style):
    """Bags of varying length through tf.data: losses equal those of the oracle's outputs."""
    bags = [rng.integers(0, ROWS, n).tolist() for n in rng.integers(0, 6, 32)]
    y = np.asarray([[sum(bag) % 2] for bag in bags], np.float32)
    ids = kinds.make(kind, bags, "int64")
    mask = kinds.PADDING if kind == "masked" else None
    embedding = sok.layers.DistributedEmbedding(WIDTH, "sum", mask_value=mask)
    if style == "functional":
        width = ids.shape[1] if kind in ("sparse", "masked") else None
        inputs = keras.Input((width,), dtype="int64", sparse=kind == "sparse", ragged=kind.startswith("ragged"))
        model = keras.Model(inputs, keras.layers.Dense(1)(embedding(inputs)))
    else:
        model = Subclassed(embedding)
    model.compile(sok.SGD(0.05), "mse")
    dataset = tf.data.Dataset.from_tensor_slices((ids, y)).batch(8)
    losses = model.fit(dataset, epochs=6, shuffle=False, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    known = {id_ for bag in bags for id_ in bag}
    learned = kinds.export_as_dict(embedding.table)
    assert set(learned) == known
    kernel, bias = model.layers[-1].get_weights()
    sums = np.stack([np.sum([learned[i] for i in bag] or [np.zeros(WIDTH)], axis=0) for bag in bags])
    np.testing.assert_allclose(model.predict(dataset, verbose=0), sums @ kernel + bias, rtol=1e-4, atol=1e-5)


def test_collection_in_a_functional_model(rng):
    items = sok.TableConfig("items", WIDTH)
    users = sok.TableConfig("users", 2, vocabulary_size=ROWS)
    layer = sok.EmbeddingCollection(
        [
            sok.FeatureConfig("user", users),
            sok.FeatureConfig("item", items),
            sok.FeatureConfig("history", items, combiner="sqrtn"),
        ]
    )
    inputs = {
        "user": keras.Input((), dtype="int64", name="user"),
        "item": keras.Input((1,), dtype="int32", name="item"),
        "history": keras.Input((None,), dtype="int64", ragged=True, name="history"),
    }
    x = keras.layers.Concatenate()(list(layer(inputs).values()))
    model = keras.Model(inputs, keras.layers.Dense(1)(x))
    model.compile(sok.OptimizerWrapper("adam"), "mse")
    bags = [rng.integers(0, ROWS, n).tolist() for n in rng.integers(0, 6, 40)]
    data = {
        "user": rng.integers(0, ROWS, 40),
        "item": rng.integers(0, ROWS, (40, 1)).astype(np.int32),
        "history": kinds.make("ragged64", bags, "int64"),
    }
    y = rng.normal(size=(40, 1)).astype(np.float32)
    dataset = tf.data.Dataset.from_tensor_slices((data, y)).batch(16)
    losses = model.fit(dataset, epochs=15, shuffle=False, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    known = {id_ for bag in bags for id_ in bag} | set(data["item"].ravel().tolist())
    assert set(kinds.export_as_dict(layer.tables["items"])) == known


def test_model_of_tables_only(data):
    """No dense variable at all."""
    inputs = keras.Input((HOTNESS,), dtype="int64")
    embedding = sok.layers.DistributedEmbedding(1)
    model = keras.Model(inputs, embedding(inputs))
    model.compile(sok.SGD(0.1), "mse")
    losses = model.fit(*data, epochs=4, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    assert int(model.optimizer.iterations) == 12


def test_no_retrace_for_new_batch_sizes(data):
    traces = []

    class Traced(sok.layers.DistributedEmbedding):
        def call(self, inputs, training=None):
            traces.append(1)
            return super().call(inputs, training=training)

    model = functional(Traced(WIDTH))
    model.compile(sok.SGD(0.1), "mse")
    ids, y = data
    # A full batch and one that is not full: Keras generalises the batch size once.
    model.fit(ids, y, batch_size=16, verbose=0)
    model.predict(ids, batch_size=16, verbose=0)
    before = len(traces)
    for batch_size in (7, 16, 33, 70):
        model.fit(ids, y, batch_size=batch_size, verbose=0)
        model.predict(ids, batch_size=batch_size, verbose=0)
    assert len(traces) == before


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_fit(data, policy):
    keras.config.set_dtype_policy(policy)
    embedding = sok.layers.DistributedEmbedding(WIDTH)
    model = functional(embedding)
    wrapper = sok.OptimizerWrapper(
        keras.optimizers.Adagrad(0.1), loss_scale="dynamic" if policy == "mixed_float16" else None
    )
    model.compile(wrapper, "mse")
    losses = model.fit(*data, epochs=10, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    assert np.all(np.isfinite(losses))
    assert embedding.table.attributes.row_type == "float32"
    assert model.predict(data[0], verbose=0).dtype.name == policy[6:]


def test_custom_training_loop(data, rows):
    model, table = prepare(functional(sok.layers.DistributedEmbedding(WIDTH)), data, rows)
    optimizer = sok.SGD(0.1)
    loss_function = keras.losses.MeanSquaredError()

    @tf.function
    def step(ids, y):
        with tf.GradientTape() as tape:
            loss = loss_function(y, model(ids, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    for start in range(0, 70, 16):
        step(tf.constant(data[0][start : start + 16]), tf.constant(data[1][start : start + 16]))
    _, expected = plain_keras(data, rows, 1)
    learned = kinds.export_as_dict(table)
    np.testing.assert_allclose(np.stack([learned[i] for i in range(ROWS)]), expected, rtol=1e-4, atol=1e-6)


def test_a_model_that_dies_frees_its_table(data):
    model, table = compiled()
    model.fit(*data, verbose=0)
    handle = table.handle
    keras.utils.clear_session()
    del model, table
    gc.collect()
    with pytest.raises(tf.errors.NotFoundError):
        sok._native.ops.sok_table_size(handle)


def test_tables_of_one_name_are_two_tables():
    a, b = (sok.DynamicVariable(1, initializer="ones", name="same") for _ in range(2))
    sok.lookup_sparse(a, [[1]])
    assert a.size == [1, 1]
    assert b.size == [0, 1]
