# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""What was saved from one kind of table and is restored into another: refused by all ways alike, with what was
saved, what the table is and what to do; and the table is as it was."""

import keras
import kinds
import numpy as np
import pytest
import tensorflow as tf
from restored_tables import WAYS, by_assign, by_checkpoint, by_set_weights, by_weights_file, model_of, snapshot, train

import sok
from sok.table import TableValue

KEY_TYPES = ("int32", "int64", "uint32", "uint64")
UNFIT = [(a, b) for a in KEY_TYPES for b in KEY_TYPES if not np.can_cast(a, b)]
FIT = [(a, b) for a in KEY_TYPES for b in KEY_TYPES if np.can_cast(a, b)]

ways = pytest.mark.parametrize("way", WAYS)


def extremes(key_type):
    limits = np.iinfo(key_type)
    return tf.constant(np.array([limits.min, 1, limits.max], key_type))


def hash_table(key_type="int64", dimension=2, name="items"):
    table = sok.DynamicVariable(dimension, name=name, key_type=key_type)
    sok.assign(table, extremes(key_type), np.arange(3 * dimension, dtype=np.float32).reshape(3, dimension))
    return table


def static_table(rows, dimension=2, name="items"):
    return sok.Variable(np.arange(rows * dimension, dtype=np.float32).reshape(rows, dimension), name=name)


def trained(table):
    """With rows and states that must stay."""
    train(table, sok.OptimizerWrapper(keras.optimizers.Adam(0.1)), [[0, 1]])
    return table


def refused(way, saved, table, folder, words):
    before = snapshot(table)
    with pytest.raises(ValueError, match=rf"(?s)table 'items'.*{words}"):
        way(saved, table, folder)
    assert snapshot(table) == before


@ways
@pytest.mark.parametrize(("theirs", "ours"), UNFIT)
def test_key_types_that_do_not_fit(tmp_path, way, theirs, ours):
    words = f"saved from a table of key_type {theirs}, this one has key_type {ours}, .*key_type='{theirs}'"
    refused(way, hash_table(theirs), trained(hash_table(ours)), tmp_path, words)


@ways
@pytest.mark.parametrize(("theirs", "ours"), FIT)
def test_key_types_that_fit(tmp_path, way, theirs, ours):
    saved, table = hash_table(theirs), trained(hash_table(ours))
    way(saved, table, tmp_path)
    kinds.assert_rows(kinds.export_as_dict(table), kinds.export_as_dict(saved))
    assert set(kinds.export_as_dict(table)) == set(extremes(theirs).numpy().tolist())


@ways
@pytest.mark.parametrize(
    ("saved", "table", "words"),
    [
        (lambda: static_table(3), hash_table, "from a static table, this one is a hash table: .*vocabulary_size"),
        (hash_table, lambda: static_table(3), "from a hash table, this one is a static table: .*sok.DynamicVariable"),
        (lambda: static_table(9), lambda: static_table(5), "of 9 rows, this one has 5 rows: .*vocabulary_size=9"),
        (lambda: static_table(9), lambda: static_table(20), "of 9 rows, this one has 20 rows: make it with 9 rows"),
    ],
)
def test_kinds_and_rows(tmp_path, way, saved, table, words):
    refused(way, saved(), trained(table()), tmp_path, words)


@ways
@pytest.mark.parametrize("make", [hash_table, lambda dimension: static_table(3, dimension)])
def test_dimensions(tmp_path, way, make):
    saved, table = make(dimension=3), trained(make(dimension=2))
    if way is by_set_weights:  # Keras compares these itself
        before = snapshot(table)
        with pytest.raises(ValueError, match=r"weight shape .*, 2\) is not compatible with .* shape \(3, 3\)"):
            way(saved, table, tmp_path)
        assert snapshot(table) == before
    else:
        refused(way, saved, table, tmp_path, "of dimension 3, this one has dimension 2: make it with dimension=3")


# Files from before tables said what they are.


@pytest.fixture
def without_origin(monkeypatch):
    """How a table was saved then."""
    state = TableValue.state
    with monkeypatch.context() as patch:
        patch.setattr(TableValue, "state", lambda self: {k: v for k, v in state(self).items() if k != "origin"})
        yield patch


old_ways = pytest.mark.parametrize("way", [by_checkpoint, by_assign, by_weights_file])


@old_ways
@pytest.mark.parametrize("key_type", KEY_TYPES)
def test_older_files(tmp_path, without_origin, way, key_type):
    saved, table = trained(hash_table(key_type)), trained(hash_table(key_type))
    way(saved, table, tmp_path)
    assert snapshot(table) == snapshot(saved)
    saved, table = trained(static_table(4)), static_table(4)
    way(saved, table, tmp_path)
    assert snapshot(table) == snapshot(saved)


@old_ways
@pytest.mark.parametrize(
    ("ids", "make", "words"),
    [
        ([0, 2**32], lambda: hash_table("int32"), "has the id 4294967296, this table has key_type int32: ids from -2"),
        ([0, -(2**31) - 1], lambda: hash_table("int32"), "has the id -2147483649"),
        ([0, -1], lambda: hash_table("uint32"), "the id -1, this table has key_type uint32: ids from 0 to 4294967295"),
        ([0, 2**32], lambda: hash_table("uint32"), "has the id 4294967296"),
        ([0, 2**32], lambda: static_table(2), "has the id 4294967296, this table has 2 rows: ids from 0 to 1"),
        ([0, -1], lambda: static_table(2), "has the id -1, this table has 2 rows"),
        ([0, 1], lambda: static_table(3), "of 2 rows, this one has 3 rows"),
        ([0, 1], lambda: hash_table(dimension=3), "of dimension 2, this one has dimension 3"),
    ],
)
def test_older_files_that_do_not_fit(tmp_path, without_origin, way, ids, make, words):
    saved = sok.DynamicVariable(2, name="items")
    sok.assign(saved, tf.constant(ids, tf.int64), np.ones((2, 2)))
    refused(way, saved, trained(make()), tmp_path, words)


def test_checkpoint_is_read_without_a_copy_of_the_table(tmp_path, monkeypatch):
    """What a checkpoint has is asked for by name; the rows that are there need not be gathered for that."""
    saved, table = hash_table(), hash_table()
    path = tf.train.Checkpoint(table=saved).save(str(tmp_path / "checkpoint"))
    monkeypatch.setattr(TableValue, "state", None)
    tf.train.Checkpoint(table=table).restore(path).assert_consumed()


def test_a_row_type_is_converted(tmp_path):
    """As Keras does with every weight."""
    saved, table = hash_table(), sok.DynamicVariable(2, name="items", dtype="bfloat16")
    for way in (by_checkpoint, by_weights_file, by_assign):
        way(saved, table, tmp_path)
        kinds.assert_rows(kinds.export_as_dict(table), kinds.export_as_dict(saved))


def test_saved_model_with_the_variables_of_another(tmp_path):
    """Its graph checks what it reads."""
    for name, key_type in (("wide", "int64"), ("narrow", "int32")):
        tf.saved_model.save(model_of(hash_table(key_type)), str(tmp_path / name))
    for file in (tmp_path / "wide" / "variables").iterdir():
        (tmp_path / "narrow" / "variables" / file.name).write_bytes(file.read_bytes())
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)items.*not its own.*int32.*key_dtype=int64"):
        tf.saved_model.load(str(tmp_path / "narrow"))
