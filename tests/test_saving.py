# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables in .keras files, weight files, checkpoints and SavedModels; also in a new process."""

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

import sok

WIDTH = 3
ROOT = pathlib.Path(sok.__file__).parent.parent


@pytest.fixture(autouse=True)
def _the_same_bits_in_every_run():
    sok.deterministic(True)
    yield
    sok.deterministic(False)


@pytest.fixture
def data(rng):
    special = np.asarray(reference.SENTINELS["int64"])
    ids = rng.choice(special, (40, 2))
    return ids, rng.normal(size=(40, 1)).astype(np.float32)


def _model(kind="embedding", optimizer=None, **kwargs):
    """The same model with a table from each of the ways to have one."""
    inputs = keras.Input((2,), dtype="int64", name="ids")
    if kind == "embedding":
        x = sok.layers.DistributedEmbedding(WIDTH, "sum", name="embedding", **kwargs)(inputs)
    elif kind == "collection":
        table = sok.TableConfig("a. b", WIDTH, **kwargs)
        other = sok.TableConfig("other", 2, vocabulary_size=4, out_of_range="zero")
        layer = sok.EmbeddingCollection(
            [sok.FeatureConfig("x", table), sok.FeatureConfig("y", other)], name="embedding"
        )
        x = keras.layers.Concatenate()(list(layer({"x": inputs, "y": inputs}).values()))
    else:
        x = Own(name="embedding")(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1)(x))
    optimizer = optimizer or keras.optimizers.Adam(0.05)
    model.compile(sok.OptimizerWrapper(optimizer), "mse")
    return model


@keras.saving.register_keras_serializable("tests")
class Own(sok.layers.TableMixin, keras.layers.Layer):
    """A user's layer with two tables and an ordinary weight."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_jit = False
        self.first = sok.DynamicVariable(WIDTH)
        self.second = sok.DynamicVariable(WIDTH, dtype="bfloat16")

    def build(self, input_shape):
        self.scale = self.add_weight(shape=(WIDTH,), initializer="ones", name="scale")

    def call(self, inputs, training=None):
        a, b = sok.lookup_sparse([self.first, self.second], [inputs, inputs], training=bool(training))
        return self.scale * (a + tf.cast(b, tf.float32))


def _tables(model):
    return [v for v in model.variables if isinstance(v, sok.variables.TableVariable)]


def _states(model):
    """Everything that the tables hold, by id."""
    result = []
    for table in _tables(model):
        found = sok.check_out(table)
        ids = found.pop("ids").tolist()
        result.append({name: {id_: values[i] for i, id_ in enumerate(ids)} for name, values in sorted(found.items())})
    return result


def _assert_same(a, b):
    assert len(a) == len(b)
    for mine, theirs in zip(a, b, strict=True):
        assert list(mine) == list(theirs)
        for name in mine:
            kinds.assert_rows(mine[name], theirs[name])


KINDS = ("embedding", "collection", "own")


@pytest.mark.parametrize("kind", KINDS)
def test_keras_file(tmp_path, data, kind):
    """Rows, states, steps; the next training steps are those of the model that was saved."""
    model = _model(kind)
    model.fit(*data, epochs=2, shuffle=False, verbose=0)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    _assert_same(_states(loaded), _states(model))
    np.testing.assert_array_equal(loaded.predict(data[0], verbose=0), model.predict(data[0], verbose=0))
    assert int(loaded.optimizer.iterations) == int(model.optimizer.iterations) == 4
    fresh_ids = data[0] + 77
    for m in (model, loaded):
        m.fit(np.concatenate([data[0], fresh_ids]), np.tile(data[1], (2, 1)), shuffle=False, verbose=0)
    _assert_same(_states(loaded), _states(model))
    np.testing.assert_array_equal(loaded.predict(fresh_ids, verbose=0), model.predict(fresh_ids, verbose=0))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("suffix", [".weights.h5", ".weights.json"])
def test_weight_files(tmp_path, data, kind, suffix):
    model = _model(kind)
    model.fit(*data, verbose=0)
    arguments = {"max_shard_size": 0.00001} if suffix == ".weights.json" else {}
    path = tmp_path / f"m{suffix}"
    model.save_weights(path, **arguments)
    other = _model(kind)
    other.fit(data[0] + 5, data[1], verbose=0)
    other.load_weights(path)
    _assert_same(_states(other), _states(model))
    np.testing.assert_array_equal(other.predict(data[0], verbose=0), model.predict(data[0], verbose=0))


@pytest.mark.parametrize("kind", KINDS)
def test_checkpoint_into_a_fresh_model(tmp_path, data, kind):
    """Everything is matched, and the next steps equal those of the model that was saved."""
    model = _model(kind)
    model.fit(*data, epochs=2, shuffle=False, verbose=0)
    path = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(str(tmp_path / "ckpt"))
    expected = _states(model)
    model.fit(*data, epochs=3, shuffle=False, verbose=0)
    other = _model(kind)
    other.optimizer.build(other.trainable_variables)
    checkpoint = tf.train.Checkpoint(model=other, optimizer=other.optimizer)
    checkpoint.restore(path).assert_existing_objects_matched()
    _assert_same(_states(other), expected)
    assert int(other.optimizer.iterations) == 4
    other.fit(*data, epochs=3, shuffle=False, verbose=0)
    _assert_same(_states(other), _states(model))
    np.testing.assert_array_equal(other.predict(data[0], verbose=0), model.predict(data[0], verbose=0))


def test_checkpoint_restored_before_anything_was_built(tmp_path, data):
    """tf.train.Checkpoint defers; tables are there from the start and restore at once."""
    model = _model()
    model.fit(*data, shuffle=False, verbose=0)
    path = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(str(tmp_path / "ckpt"))
    other = _model()
    tf.train.Checkpoint(model=other, optimizer=other.optimizer).restore(path)
    for m in (model, other):
        m.fit(*data, epochs=2, shuffle=False, verbose=0)
    _assert_same(_states(other), _states(model))


def test_checkpoint_of_a_bare_table(tmp_path):
    """No Keras around it; written twice, as a manager does in training."""
    table = sok.DynamicVariable(2, key_type="uint64", name="bare")
    sok.assign(table, tf.constant([1, 2**63], tf.uint64), [[1.0, 2.0], [3.0, 4.0]])
    checkpoint = tf.train.Checkpoint(table=table)
    manager = tf.train.CheckpointManager(checkpoint, str(tmp_path), max_to_keep=2)
    first = manager.save()
    sok.assign(table, tf.constant([5], tf.uint64), [[5.0, 6.0]])
    second = manager.save()
    for path, ids in ((first, {1, 2**63}), (second, {1, 2**63, 5}), (first, {1, 2**63})):
        checkpoint.restore(path).assert_consumed()
        assert set(kinds.export_as_dict(table)) == ids
    other = sok.DynamicVariable(2, key_type="uint64")
    tf.train.Checkpoint(table=other).restore(second).assert_consumed()
    kinds.assert_rows(kinds.export_as_dict(other), {1: [1, 2], 2**63: [3, 4], 5: [5, 6]})


def test_asynchronous_checkpoint(tmp_path):
    """The file holds the moment of the call, whatever happens to the table while it is written."""
    table = sok.DynamicVariable(2)
    sok.assign(table, [1], [[1.0, 2.0]])
    options = tf.train.CheckpointOptions(experimental_enable_async_checkpoint=True)
    checkpoint = tf.train.Checkpoint(table=table)
    path = checkpoint.save(str(tmp_path / "ckpt"), options=options)
    sok.assign(table, [1, 2], [[9.0, 9.0], [9.0, 9.0]])
    checkpoint.sync() if hasattr(checkpoint, "sync") else None
    other = sok.DynamicVariable(2)
    tf.train.Checkpoint(table=other).read(path).assert_existing_objects_matched()
    kinds.assert_rows(kinds.export_as_dict(other), {1: [1.0, 2.0]})


@pytest.mark.parametrize("kind", ["hash", "static"])
def test_empty_and_static_tables(tmp_path, kind):
    size = {"vocabulary_size": 7} if kind == "static" else {}
    model = _model(**size)
    expected = _states(model)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    _assert_same(_states(loaded), expected)
    assert loaded.layers[1].table.size == [7 if size else 0, WIDTH]
    checkpoint = tf.train.Checkpoint(model=model).save(str(tmp_path / "ckpt"))
    other = _model(**size)
    tf.train.Checkpoint(model=other).restore(checkpoint).assert_existing_objects_matched()
    _assert_same(_states(other), expected)


@pytest.mark.parametrize("dtype", reference.ROW_DTYPES)
def test_row_types(tmp_path, data, dtype):
    """16-bit rows come back with every bit."""
    model = _model("collection", dtype=dtype)
    model.fit(*data, verbose=0)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert _tables(loaded)[0].attributes.row_type == dtype
    _assert_same(_states(loaded), _states(model))


def test_files_of_another_model(tmp_path, data):
    """Refused by name, and nothing has changed."""
    wide = keras.Sequential([keras.Input((2,), dtype="int64"), sok.layers.DistributedEmbedding(5, name="embedding")])
    wide.save_weights(tmp_path / "wide.weights.h5")
    narrow = keras.Sequential(
        [keras.Input((2,), dtype="int64"), sok.layers.DistributedEmbedding(WIDTH, name="embedding")]
    )
    narrow(data[0], training=True)
    before = _states(narrow)
    with pytest.raises(ValueError, match=r"'embedding_table' has dimension 3, the file's table 5"):
        narrow.load_weights(tmp_path / "wide.weights.h5")
    plain = keras.Sequential([keras.Input((2,), dtype="int64"), keras.layers.Embedding(9, WIDTH, name="embedding")])
    plain.save_weights(tmp_path / "plain.weights.h5")
    with pytest.raises(ValueError, match=r"the file holds no 'table.0.keys'"):
        narrow.load_weights(tmp_path / "plain.weights.h5")
    _assert_same(_states(narrow), before)
    small, large = (
        keras.Sequential(
            [
                keras.Input((2,), dtype="int64"),
                sok.layers.DistributedEmbedding(WIDTH, vocabulary_size=n, name="embedding"),
            ]
        )
        for n in (4, 6)
    )
    large.save_weights(tmp_path / "large.weights.h5")
    with pytest.raises(ValueError, match="'embedding_table' has 4 rows, the file's table 6"):
        small.load_weights(tmp_path / "large.weights.h5")


def test_plain_layer_with_a_table_refuses_to_be_saved_without_its_ids(tmp_path):
    class Plain(keras.layers.Layer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.table = sok.DynamicVariable(2, name="items")

        def call(self, inputs):
            return sok.lookup_sparse(self.table, inputs)

    model = keras.Sequential([keras.Input((2,), dtype="int64"), Plain()])
    with pytest.raises(TypeError, match=r"'items'.*derives from sok\.layers\.TableMixin"):
        model.save_weights(tmp_path / "m.weights.h5")


class Many(sok.layers.TableMixin, keras.layers.Layer):
    """Tables in a list and in a dict that is filled later."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_jit = False
        self.towers = [sok.DynamicVariable(2), sok.Variable(shape=(5, 2), out_of_range="clip")]
        self.named = {}
        self.named["x"] = sok.DynamicVariable(2)
        self.built = True

    def call(self, inputs, training=None):
        tables = [*self.towers, *self.named.values()]
        return tf.add_n(sok.lookup_sparse(tables, [inputs] * 3, training=bool(training)))


def test_tables_in_lists_and_dicts(tmp_path, data):
    model, other, third = (keras.Sequential([keras.Input((2,), dtype="int64"), Many()]) for _ in range(3))
    model(data[0], training=True)
    expected = model(data[0])
    path = tf.train.Checkpoint(model=model).save(str(tmp_path / "ckpt"))
    tf.train.Checkpoint(model=other).restore(path).assert_existing_objects_matched()
    np.testing.assert_array_equal(other(data[0]), expected)
    model.save_weights(tmp_path / "m.weights.h5")
    third.load_weights(tmp_path / "m.weights.h5")
    np.testing.assert_array_equal(third(data[0]), expected)
    model.export(tmp_path / "export", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "export")
    np.testing.assert_array_equal(loaded.serve(tf.constant(data[0])), expected)


def test_seed_travels_with_the_rows(tmp_path):
    """New ids get the same initial values in whatever table the rows were loaded into."""
    table, other = (sok.DynamicVariable(3, initializer="normal") for _ in range(2))
    ids = tf.constant([[1], [2]])
    assert np.any(sok.lookup_sparse(table, ids) != sok.lookup_sparse(other, ids))
    path = tf.train.Checkpoint(table=table).save(str(tmp_path / "ckpt"))
    tf.train.Checkpoint(table=other).restore(path)
    for new in (ids, ids + 10):
        np.testing.assert_array_equal(sok.lookup_sparse(table, new), sok.lookup_sparse(other, new))


def test_full_bounded_table_takes_other_rows(tmp_path):
    """Restoring replaces: the old keys do not count against max_capacity."""
    table, other = (sok.DynamicVariable(1, max_capacity=4) for _ in range(2))
    sok.lookup_sparse(table, tf.range(4))
    sok.lookup_sparse(other, tf.range(10, 14))
    other.assign(table.numpy())
    kinds.assert_rows(kinds.export_as_dict(other), kinds.export_as_dict(table))
    larger = sok.DynamicVariable(1)
    sok.lookup_sparse(larger, tf.range(5))
    with pytest.raises(tf.errors.ResourceExhaustedError, match="5 rows do not fit; it takes at most 4"):
        other.assign(larger.numpy())
    kinds.assert_rows(kinds.export_as_dict(other), kinds.export_as_dict(table))


@pytest.mark.parametrize("make", [lambda: sok.DynamicVariable(1), lambda: sok.Variable([[1.0], [2.0]])])
def test_values_without_states_start_them_anew(make):
    def train(table):
        optimizer = sok.OptimizerWrapper(keras.optimizers.Adagrad(0.1, 0.1))
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(sok.lookup_sparse(table, [[0, 1]]))
        optimizer.apply_gradients(zip(tape.gradient(loss, [table]), [table], strict=True))

    table, fresh = make(), make()
    train(table)
    np.testing.assert_allclose(sok.check_out(table)["adagrad.accumulator"], [[0.35], [0.35]])
    sok.lookup_sparse(fresh, [[0, 1]])
    table.assign(fresh.numpy())
    np.testing.assert_allclose(sok.check_out(table)["adagrad.accumulator"], [[0.1], [0.1]])


def test_callbacks_that_save(tmp_path, data):
    """ModelCheckpoint in both forms; BackupAndRestore takes up a run that was cut off."""
    model = _model()
    whole, weights = str(tmp_path / "best.keras"), str(tmp_path / "best.weights.h5")
    model.fit(
        *data,
        epochs=2,
        verbose=0,
        callbacks=[
            keras.callbacks.ModelCheckpoint(whole, monitor="loss"),
            keras.callbacks.ModelCheckpoint(weights, save_weights_only=True, monitor="loss"),
        ],
    )
    _assert_same(_states(keras.models.load_model(whole)), _states(model))
    other = _model()
    other.load_weights(weights)
    _assert_same(_states(other), _states(model))

    class CutOff(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:
                raise KeyboardInterrupt

    def fit(model, *callbacks, **kwargs):
        model.fit(*data, epochs=4, shuffle=False, verbose=0, callbacks=list(callbacks))

    keras.utils.set_random_seed(3)
    uninterrupted = _model(seed=1)
    fit(uninterrupted)
    keras.utils.set_random_seed(3)
    model = _model(seed=1)
    backup = str(tmp_path / "backup")
    with pytest.raises(KeyboardInterrupt):
        fit(model, keras.callbacks.BackupAndRestore(backup), CutOff())
    resumed = _model(seed=1)
    fit(resumed, keras.callbacks.BackupAndRestore(backup))
    _assert_same(_states(resumed), _states(uninterrupted))


def _run(code, *arguments):
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
    )


_SERVE = """
import sys
import numpy as np, tensorflow as tf, keras
import sok
directory, which = sys.argv[1:]
ids = np.load(directory + "/ids.npy")
if which == "keras":
    out = keras.models.load_model(directory + "/m.keras").predict(ids, verbose=0)
elif which == "layer":
    layer = keras.layers.TFSMLayer(directory + "/export", call_endpoint="serve")
    out = layer(tf.constant(ids))
else:
    loaded = tf.saved_model.load(directory + "/export")
    out = loaded.serve(tf.constant(ids)).numpy()
np.save(directory + "/" + which + ".npy", out)
"""


def test_new_processes_give_the_same_bits(tmp_path, data):
    """.keras and SavedModel: known ids, and unknown ones, which serving never inserts."""
    model = _model("collection")
    model.fit(*data, epochs=2, verbose=0)
    model.save(tmp_path / "m.keras")
    model.export(tmp_path / "export", verbose=False)
    ids = np.concatenate([data[0], data[0] + 1234])
    np.save(tmp_path / "ids.npy", ids)
    expected = model(tf.constant(ids)).numpy()
    for which in ("keras", "saved_model", "layer"):
        done = _run(_SERVE, tmp_path, which)
        assert done.returncode == 0, done.stderr[-3000:]
        np.testing.assert_array_equal(np.load(tmp_path / f"{which}.npy"), expected)


def test_export_beside_the_live_model(tmp_path, data):
    """The exported table is another table: what the model learns later does not reach it."""
    model = _model()
    model.fit(*data, verbose=0)
    model.export(tmp_path / "export", verbose=False)
    before = model(tf.constant(data[0])).numpy()
    loaded = tf.saved_model.load(tmp_path / "export")
    model.fit(*data, verbose=0)
    np.testing.assert_array_equal(loaded.serve(tf.constant(data[0])), before)
    assert np.any(model(tf.constant(data[0])).numpy() != before)
    for batch in (1, 3, 0):
        assert loaded.serve(tf.constant(data[0][:batch])).shape == [batch, 1]


def test_tf_saved_model_of_a_module(tmp_path):
    """TensorFlow's own saving, of a module without Keras."""

    class Module(tf.Module):
        def __init__(self):
            self.table = sok.DynamicVariable(2, initializer="ones", default="zeros")

        @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int64)])
        def __call__(self, ids):
            return sok.lookup_sparse(self.table, ids, combiners="sum", training=False)

    module = Module()
    sok.lookup_sparse(module.table, tf.constant([[1, 2]]))
    tf.saved_model.save(module, str(tmp_path / "m"))
    loaded = tf.saved_model.load(str(tmp_path / "m"))
    np.testing.assert_array_equal(loaded(tf.constant([[1, 2, 3]], tf.int64)), [[2.0, 2.0]])


def test_saved_model_without_the_library(tmp_path, data):
    """TensorFlow's own message names the library."""
    model = _model()
    model.fit(*data, verbose=0)
    model.export(tmp_path / "export", verbose=False)
    done = _run("import sys, tensorflow as tf; tf.saved_model.load(sys.argv[1])", tmp_path / "export")
    assert done.returncode != 0
    assert "Op type not registered 'Sok>" in done.stderr
