# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables in checkpoints of TensorFlow, and what is restored into a table that has rows already."""

import keras
import kinds
import numpy as np
import pytest
import tensorflow as tf
from models_to_save import KINDS, assert_same, examples, make_model, states_of

import sok

pytestmark = pytest.mark.usefixtures("deterministic")


@pytest.fixture
def data(rng):
    return examples(rng)


@pytest.mark.parametrize("kind", KINDS)
def test_checkpoint_into_a_fresh_model(tmp_path, data, kind):
    """Everything is matched, and the next steps equal those of the model that was saved."""
    model = make_model(kind)
    model.fit(*data, epochs=2, shuffle=False, verbose=0)
    path = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(str(tmp_path / "ckpt"))
    expected = states_of(model)
    model.fit(*data, epochs=3, shuffle=False, verbose=0)
    other = make_model(kind)
    other.optimizer.build(other.trainable_variables)
    checkpoint = tf.train.Checkpoint(model=other, optimizer=other.optimizer)
    checkpoint.restore(path).assert_existing_objects_matched()
    assert_same(states_of(other), expected)
    assert int(other.optimizer.iterations) == 4
    other.fit(*data, epochs=3, shuffle=False, verbose=0)
    assert_same(states_of(other), states_of(model))
    np.testing.assert_array_equal(other.predict(data[0], verbose=0), model.predict(data[0], verbose=0))


def test_checkpoint_restored_before_anything_was_built(tmp_path, data):
    """tf.train.Checkpoint defers; tables are there from the start and restore at once."""
    model = make_model()
    model.fit(*data, shuffle=False, verbose=0)
    path = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(str(tmp_path / "ckpt"))
    other = make_model()
    tf.train.Checkpoint(model=other, optimizer=other.optimizer).restore(path)
    for m in (model, other):
        m.fit(*data, epochs=2, shuffle=False, verbose=0)
    assert_same(states_of(other), states_of(model))


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
