# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables inside Keras models: every style of model and of compilation, callbacks, freezing."""

import gc

import keras
import kinds
import numpy as np
import pytest
import tensorflow as tf

import sok

ROWS, WIDTH, HOTNESS = 30, 4, 3


@pytest.fixture
def data(rng):
    ids = rng.integers(0, ROWS, (70, HOTNESS))
    return ids, (ids.sum(axis=1, keepdims=True) % 2).astype(np.float32)


@pytest.fixture
def rows(rng):
    return rng.normal(size=(ROWS, WIDTH)).astype(np.float32)


@keras.saving.register_keras_serializable("tests")
class Subclassed(keras.Model):
    def __init__(self, embedding=None, **kwargs):
        super().__init__(**kwargs)
        self.embedding = embedding or sok.layers.DistributedEmbedding(WIDTH)
        self.dense = keras.layers.Dense(1)

    def call(self, inputs, training=None):
        return self.dense(self.embedding(inputs, training=training))


def sequential(embedding):
    return keras.Sequential([keras.Input((HOTNESS,), dtype="int64"), embedding, keras.layers.Dense(1)])


def functional(embedding):
    inputs = keras.Input((HOTNESS,), dtype="int64")
    return keras.Model(inputs, keras.layers.Dense(1)(embedding(inputs)))


STYLES = {"sequential": sequential, "functional": functional, "subclassed": Subclassed}


def _start(model, data, rows):
    """The same weights for every model."""
    model(tf.constant(data[0][:1]))
    embedding = next(layer for layer in model.layers if hasattr(layer, "table"))
    sok.assign(embedding.table, np.arange(ROWS), rows)
    dense = model.layers[-1]
    dense.set_weights([np.linspace(-1, 1, WIDTH, dtype=np.float32)[:, None], np.zeros(1, np.float32)])
    return model, embedding.table


def _plain_keras(data, rows, epochs, learning_rate=0.1):
    """What a dense Embedding learns: with SGD, repeated ids add up there as well."""
    inputs = keras.Input((HOTNESS,), dtype="int64")
    embedding = keras.layers.Embedding(ROWS, WIDTH)
    x = keras.layers.GlobalAveragePooling1D()(embedding(inputs))
    model = keras.Model(inputs, keras.layers.Dense(1)(x))
    embedding.set_weights([rows])
    model.layers[-1].set_weights([np.linspace(-1, 1, WIDTH, dtype=np.float32)[:, None], np.zeros(1, np.float32)])
    model.compile(keras.optimizers.SGD(learning_rate), "mse")
    history = model.fit(*data, batch_size=16, epochs=epochs, shuffle=False, verbose=0)
    return history.history["loss"], embedding.get_weights()[0]


@pytest.mark.parametrize(
    "compilation",
    [{}, {"run_eagerly": True}, {"jit_compile": True}, {"steps_per_execution": 3}],
    ids=lambda kwargs: next(iter(kwargs), "default"),
)
@pytest.mark.parametrize("style", STYLES)
def test_fit_follows_a_plain_keras_embedding(data, rows, style, compilation):
    """Every style and compilation, with a last batch that is not full, jit forced included."""
    model, table = _start(STYLES[style](sok.layers.DistributedEmbedding(WIDTH)), data, rows)
    if compilation.get("jit_compile"):
        with pytest.warns(UserWarning, match="doesn't support `jit_compile=True`"):
            model.compile(sok.SGD(0.1), "mse", **compilation)
    else:
        model.compile(sok.SGD(0.1), "mse", **compilation)
    history = model.fit(*data, batch_size=16, epochs=2, shuffle=False, verbose=0).history["loss"]
    expected, expected_rows = _plain_keras(data, rows, 2)
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
    model, table = _start(STYLES[style](cls()), data, rows)
    model.compile(sok.SGD(0.1), "mse", run_eagerly=run_eagerly)
    history = model.fit(*data, batch_size=16, shuffle=False, verbose=0).history["loss"]
    np.testing.assert_allclose(history, _plain_keras(data, rows, 1)[0], rtol=1e-5)
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


def _compiled(style="functional", optimizer=None, **kwargs):
    embedding = sok.layers.DistributedEmbedding(WIDTH, **kwargs)
    model = STYLES[style](embedding)
    model.compile(optimizer or sok.OptimizerWrapper(keras.optimizers.Adagrad(0.1)), "mse")
    return model, embedding.table


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_only_training_inserts(data, run_eagerly):
    model, table = _compiled()
    model.run_eagerly = run_eagerly
    ids, y = data
    model.predict(ids, verbose=0)
    model.evaluate(ids, y, verbose=0)
    model.test_on_batch(ids, y)
    model.predict_on_batch(ids)
    assert table.size == [0, WIDTH]
    model.fit(ids[:10], y[:10], validation_data=(ids + 1000, y), verbose=0)
    assert table.size == [len(np.unique(ids[:10])), WIDTH]
    model.train_on_batch(ids, y)
    assert table.size == [len(np.unique(ids)), WIDTH]
    counters = sok.stats(table)[table.name]
    assert counters["rows"] == counters["inserted"] == table.size[0]


def test_predict_needs_no_optimizer(data):
    model = functional(sok.layers.DistributedEmbedding(WIDTH, default="zeros"))
    np.testing.assert_array_equal(model.predict(data[0], verbose=0), np.zeros((70, 1)))


def test_freezing_follows_keras(data):
    """A frozen layer learns nothing and inserts nothing; unfreezing wants a new compile."""
    model, table = _compiled()
    model.fit(*data, verbose=0)
    before = kinds.export_as_dict(table)
    embedding = model.layers[1]
    embedding.trainable = False
    model.compile(sok.OptimizerWrapper("adam"), "mse")
    kernel = model.layers[-1].get_weights()[0]
    model.fit(data[0] + 5, data[1], verbose=0)
    kinds.assert_rows(kinds.export_as_dict(table), before)
    assert np.all(model.layers[-1].get_weights()[0] != kernel)
    assert table in model.non_trainable_variables
    embedding.trainable = True
    model.compile(sok.OptimizerWrapper("adam"), "mse")
    model.fit(data[0] + 5, data[1], verbose=0)
    assert table.size[0] > len(before)


def test_model_of_tables_only(data):
    """No dense variable at all."""
    inputs = keras.Input((HOTNESS,), dtype="int64")
    embedding = sok.layers.DistributedEmbedding(1)
    model = keras.Model(inputs, embedding(inputs))
    model.compile(sok.SGD(0.1), "mse")
    losses = model.fit(*data, epochs=4, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    assert int(model.optimizer.iterations) == 12


def test_get_and_set_weights_of_a_table_that_grew(data):
    model, table = _compiled()
    model.fit(data[0][:5], data[1][:5], verbose=0)
    weights = model.get_weights()
    prediction = model.predict(data[0], verbose=0)
    before = kinds.export_as_dict(table)
    model.fit(*data, epochs=2, verbose=0)
    assert table.size[0] > len(before)
    model.set_weights(weights)
    kinds.assert_rows(kinds.export_as_dict(table), before)
    np.testing.assert_array_equal(model.predict(data[0], verbose=0), prediction)
    array = table.numpy()
    assert array.shape == (len(before), WIDTH)
    np.testing.assert_array_equal(array, np.stack([before[i] for i in array.ids.tolist()]))


def test_weights_of_another_model(data):
    """set_weights between two models of one shape, states included."""
    model, table = _compiled()
    model.fit(*data, verbose=0)
    other, other_table = _compiled()
    other.set_weights(model.get_weights())
    kinds.assert_rows(kinds.export_as_dict(other_table), kinds.export_as_dict(table))
    ids, accumulators = (sok.check_out(table)[name] for name in ("ids", "adagrad.accumulator"))
    found = sok.check_out(other_table)
    expected = dict(zip(ids.tolist(), accumulators, strict=True))
    kinds.assert_rows(dict(zip(found["ids"].tolist(), found["adagrad.accumulator"], strict=True)), expected)
    wider, _ = _compiled()
    with pytest.raises(ValueError, match="only from its own numpy"):
        wider.layers[1].table.assign(np.zeros((3, WIDTH)))


def test_early_stopping_restores_the_best_table(data):
    """The table has grown since its best epoch; the best one comes back as it was."""
    model, table = _compiled(optimizer=sok.SGD(0.05))
    ids, y = data
    seen = []

    class Watch(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen.append((kinds.export_as_dict(table), logs["val_loss"]))

    def batches():
        # Each epoch brings new ids, and soon labels that are far away.
        for epoch in range(8):
            for _ in range(2):
                yield ids + 1000 * epoch, y if epoch < 2 else y + 100.0

    dataset = tf.data.Dataset.from_generator(
        batches, output_signature=(tf.TensorSpec((None, HOTNESS), tf.int64), tf.TensorSpec((None, 1)))
    )
    stop = keras.callbacks.EarlyStopping(monitor="val_loss", patience=2, restore_best_weights=True)
    model.fit(
        dataset,
        steps_per_epoch=2,
        epochs=8,
        shuffle=False,
        validation_data=(ids, y),
        verbose=0,
        callbacks=[Watch(), stop],
    )
    best = int(np.argmin([loss for _, loss in seen]))
    assert stop.stopped_epoch > best
    assert len(seen[-1][0]) > len(seen[best][0])
    kinds.assert_rows(kinds.export_as_dict(table), seen[best][0])
    np.testing.assert_allclose(model.evaluate(ids, y, verbose=0), seen[best][1], rtol=1e-6)


def test_clone_model(data):
    model, table = _compiled()
    model.fit(*data, verbose=0)
    clone = keras.models.clone_model(model)
    assert clone.layers[1].table is not table
    assert clone.layers[1].table.size == [0, WIDTH]
    clone.set_weights(model.get_weights())
    np.testing.assert_array_equal(clone.predict(data[0], verbose=0), model.predict(data[0], verbose=0))
    model.fit(*data, verbose=0)
    clone_rows = kinds.export_as_dict(clone.layers[1].table)
    assert any(np.any(clone_rows[i] != row) for i, row in kinds.export_as_dict(table).items())


def test_summary_counts_live_rows(data):
    model, table = _compiled()
    model.fit(*data, verbose=0)
    lines = []
    model.summary(print_fn=lambda text, **kwargs: lines.append(text))
    assert str(table.size[0] * WIDTH) in "".join(lines)
    assert model.count_params() == table.size[0] * WIDTH + WIDTH + 1


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


def test_activity_regularizer_in_fit(data, rows):
    """It shrinks rows as it does behind the embedding, in a layer of Keras's own."""
    regularizer = keras.regularizers.L2(0.5)

    def trained(ours, behind):
        embedding = sok.layers.DistributedEmbedding(WIDTH, activity_regularizer=ours)
        inputs = keras.Input((HOTNESS,), dtype="int64")
        x = keras.layers.Activation("linear", activity_regularizer=behind)(embedding(inputs))
        model, table = _start(keras.Model(inputs, keras.layers.Dense(1)(x)), data, rows)
        model.compile(sok.SGD(0.1), "mse")
        model.fit(*data, batch_size=16, shuffle=False, verbose=0)
        return kinds.export_as_dict(table)

    plain, shrunk, expected = trained(None, None), trained(regularizer, None), trained(None, regularizer)
    kinds.assert_rows(shrunk, expected, rtol=1e-5, atol=1e-7)
    norm = lambda table: sum(np.sum(row**2) for row in table.values())  # noqa: E731
    assert norm(shrunk) < norm(plain)


def test_several_calls_of_one_layer_in_a_model(rng):
    """Two inputs through one layer: gradients of both calls meet in one update."""
    embedding = sok.layers.DistributedEmbedding(WIDTH, "sum", initializer="ones")
    a, b = keras.Input((2,), dtype="int64"), keras.Input((2,), dtype="int64")
    out = keras.layers.Dot(axes=1)([embedding(a), embedding(b)])
    model = keras.Model([a, b], out)
    model.compile(sok.OptimizerWrapper(keras.optimizers.Adagrad(0.5, 0.1)), lambda y, p: p)
    model.fit([np.asarray([[1, 2]]), np.asarray([[2, 3]])], np.zeros((1, 1)), verbose=0)
    step = lambda g: 1.0 - 0.5 * g / np.sqrt(0.1 + g * g + 1e-7)  # noqa: E731
    expected = {1: [step(2.0)] * WIDTH, 2: [step(4.0)] * WIDTH, 3: [step(2.0)] * WIDTH}
    kinds.assert_rows(kinds.export_as_dict(embedding.table), expected, rtol=1e-5)


@pytest.mark.parametrize("combiner", ["sum", "mean"])
def test_weights_that_are_learned(data, rows, combiner):
    """Weights from a Dense layer: it learns as it does over a dense Embedding with the same sums."""
    ids, y = data
    features = ids[:, :, None].astype(np.float32) / ROWS

    def scores():
        return keras.layers.Dense(
            1, activation="sigmoid", kernel_initializer=keras.initializers.Constant(0.7), name="scores"
        )

    def trained(pooled, optimizer):
        inputs = keras.Input((HOTNESS,), dtype="int64"), keras.Input((HOTNESS, 1))
        score = scores()
        weights = keras.layers.Reshape((HOTNESS,))(score(inputs[1]))
        out = keras.layers.Dense(1, kernel_initializer="ones")(pooled(inputs[0], weights))
        model = keras.Model(inputs, out)
        model.compile(optimizer, "mse")
        model.fit((ids, features), y, batch_size=16, epochs=2, shuffle=False, verbose=0)
        return score.get_weights()

    embedding = sok.layers.DistributedEmbedding(WIDTH, combiner)
    sok.assign(embedding.table, np.arange(ROWS), rows)
    dense = keras.layers.Embedding(ROWS, WIDTH)
    dense.build(None)
    dense.set_weights([rows])

    def pooled(ids, weights):
        total = keras.ops.sum(dense(ids) * weights[:, :, None], axis=1)
        divisor = keras.ops.sum(weights, axis=1, keepdims=True) if combiner == "mean" else 1.0
        return total / divisor

    ours = trained(lambda ids, weights: embedding((ids, weights)), sok.SGD(0.05))
    expected = trained(pooled, keras.optimizers.SGD(0.05))
    assert np.any(ours[0] != np.float32(0.7))
    for mine, theirs in zip(ours, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6)
    learned = kinds.export_as_dict(embedding.table)
    np.testing.assert_allclose(
        np.stack([learned[i] for i in range(ROWS)]), dense.get_weights()[0], rtol=1e-4, atol=1e-6
    )


def test_custom_training_loop(data, rows):
    model, table = _start(functional(sok.layers.DistributedEmbedding(WIDTH)), data, rows)
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
    _, expected = _plain_keras(data, rows, 1)
    learned = kinds.export_as_dict(table)
    np.testing.assert_allclose(np.stack([learned[i] for i in range(ROWS)]), expected, rtol=1e-4, atol=1e-6)


def test_a_model_that_dies_frees_its_table(data):
    model, table = _compiled()
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
