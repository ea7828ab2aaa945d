# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Saved tables whose arrays do not belong together: refused by name, and the table is as it was."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from restored_tables import WAYS, by_assign, by_set_weights, by_weights_file, model_of, snapshot, train

import sok
from sok.table import TableValue


def make_table(optimizer="Adam"):
    table = sok.DynamicVariable(4, name="items", initializer="normal")
    train(table, sok.OptimizerWrapper(getattr(keras.optimizers, optimizer)(0.1)), [[1, 2, 3]])
    return table


@pytest.fixture
def damaged(monkeypatch):
    """A table of three rows with Adam's states that saves its state after `change` has been at it."""

    def make(change):
        table = make_table()
        state = {name: np.asarray(array) for name, array in table.table.state().items()}
        state = {name: tf.constant(array) for name, array in {**state, **change(state)}.items()}
        real = TableValue.state
        monkeypatch.setattr(TableValue, "state", lambda self: dict(state) if self is table.table else real(self))
        return table

    return make


def names(*given):
    return np.array(given, object)


NUMBERS = {
    "names cut": (lambda s: {"state_names": names(b"adam.m")}, r"state_widths are \[4, 4\], not a width for each"),
    "names more": (lambda s: {"state_names": names(b"adam.m", b"adam.v", b"x")}, "not a width for each"),
    "names twice": (lambda s: {"state_names": names(b"adam.m", b"adam.m")}, "a name of its own"),
    "names values": (lambda s: {"state_names": names(b"adam.m", b"values")}, "a name of its own"),
    "names bytes": (lambda s: {"state_names": names(b"adam.m", b"\xff\xfe")}, "its state_names are"),
    "widths cut": (lambda s: {"state_widths": np.array([8])}, r"state_widths are \[8\]"),
    "widths below 1": (lambda s: {"state_widths": np.array([12, -4])}, r"state_widths are \[12, -4\]"),
    "widths 0": (lambda s: {"state_widths": np.array([8, 0])}, r"state_widths are \[8, 0\]"),
    "widths other": (lambda s: {"state_widths": np.array([2, 6])}, "'adam.m' has the width 2, not 4"),
    "initials cut": (lambda s: {"state_initials": np.zeros(1, np.float32)}, r"state_initials are \[0.0\], not 2"),
    "initials nan": (lambda s: {"state_initials": np.array([0, np.nan], np.float32)}, "2 finite numbers"),
    "initials inf": (lambda s: {"state_initials": np.array([-np.inf, 0], np.float32)}, "2 finite numbers"),
    "states narrow": (lambda s: {"states": s["states"][:, :5]}, r"states have the shape \[3, 5\].*make \[3, 8\]"),
    "states short": (lambda s: {"states": s["states"][:2]}, r"states have the shape \[2, 8\].*make \[3, 8\]"),
    "states flat": (lambda s: {"states": s["states"].ravel()}, r"states have the shape \[24\]"),
    "keys short": (lambda s: {"keys": s["keys"][:2]}, "2 keys, but values of 3 rows"),
    "keys long": (lambda s: {"keys": np.arange(7)}, "7 keys, but values of 3 rows"),
    "keys square": (lambda s: {"keys": s["keys"][None]}, r"keys are int64 \[1, 3\], not int64 \[n\]"),
    "keys twice": (lambda s: {"keys": np.array([1, 2, 1])}, "id 1 is repeated"),
    "values short": (lambda s: {"values": s["values"][:1]}, "3 keys, but values of 1 rows"),
    "values flat": (lambda s: {"values": s["values"].ravel()}, r"values have the shape \[12\]"),
    "values narrow": (lambda s: {"values": s["values"][:, :3]}, "of dimension 3, this one has dimension 4"),
    "seed": (lambda s: {"seed": np.array([1, 2])}, r"seed is int64 \[2\], not one whole number"),
    "origin cut": (lambda s: {"origin": s["origin"][:2]}, "its origin is"),
    "origin other": (lambda s: {"origin": names(b"kind=heap", *s["origin"][1:])}, "its origin is .*kind=heap"),
}
# These a checkpoint's own types rule out, or an array's shape, which Keras compares.
TYPES = {
    "keys float": (lambda s: {"keys": s["keys"] + 0.5}, r"keys are float64 \[3\]"),
    "keys unsigned": (lambda s: {"keys": s["keys"].astype(np.uint64)}, r"keys are uint64 \[3\]"),
    "values complex": (lambda s: {"values": s["values"] * 1j}, "values are complex64, not numbers"),
    "states complex": (lambda s: {"states": s["states"] * 1j}, "states are complex64, not numbers"),
    "widths float": (lambda s: {"state_widths": np.array([4.0, 4.0])}, "state_widths are"),
    "seed float": (lambda s: {"seed": np.float64(3)}, "seed is float64"),
}
SHAPES_OF_KERAS = {"values short", "values flat", "values narrow"}
CASES = [
    *((way, case) for way in WAYS for case in NUMBERS if way is not by_set_weights or case not in SHAPES_OF_KERAS),
    *((way, case) for way in (by_assign, by_weights_file) for case in TYPES),
]


@pytest.mark.parametrize(("way", "case"), CASES)
@pytest.mark.parametrize("target", [None, "Adagrad"])
def test_damage_is_refused(tmp_path, damaged, way, case, target):
    """Into a new table, and into one with the states of another optimizer."""
    change, words = {**NUMBERS, **TYPES}[case]
    saved = damaged(change)
    table = make_table(target) if target else sok.DynamicVariable(4, name="items")
    before = snapshot(table)
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=f"(?s)table 'items'.*{words}"):
        way(saved, table, tmp_path)
    assert snapshot(table) == before
    assert list(table.table.planes()) == ["values", *(name.decode() for name in before["state_names"])]


@pytest.mark.parametrize("part", ["keys", "values", "states", "state_names", "state_widths", "state_initials", "seed"])
def test_a_part_is_missing(part):
    saved, table = make_table().numpy(), make_table("Adagrad")
    before = snapshot(table)
    del saved.state[part]
    with pytest.raises(ValueError, match=f"table 'items'.*damaged: it has no '{part}'"):
        table.assign(saved)
    assert snapshot(table) == before


def test_float_keys_in_a_checkpoint(tmp_path, damaged):
    """TensorFlow refuses what has another type."""
    path = tf.train.Checkpoint(table=damaged(TYPES["keys float"][0])).save(str(tmp_path / "checkpoint"))
    table = make_table()
    before = snapshot(table)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)table.*keys"):
        tf.train.Checkpoint(table=table).restore(path)
    assert snapshot(table) == before


@pytest.mark.parametrize("way", WAYS)
def test_no_room(tmp_path, way):
    """Refused before the states of the optimizer are there."""
    table = sok.DynamicVariable(4, name="items", max_capacity=2)
    # Keras makes what any layer raises a ValueError.
    with pytest.raises((tf.errors.ResourceExhaustedError, ValueError), match="'items': 3 rows do not fit; it takes at"):
        way(make_table(), table, tmp_path)
    assert list(table.table.planes()) == ["values"]
    assert table.size == [0, 4]


def test_second_table_of_a_layer(tmp_path, damaged):
    """All of a layer's tables are checked before one is written."""

    class Pair(sok.layers.TableMixin, keras.layers.Layer):
        def __init__(self, first, second):
            super().__init__(name="pair")
            self.first, self.second = first, second

        def call(self, inputs):
            return sok.lookup_sparse([self.first, self.second], [inputs, inputs], training=False)

    def model(first, second):
        return keras.Sequential([keras.Input((1,), dtype="int64"), Pair(first, second)])

    model(make_table(), damaged(NUMBERS["names cut"][0])).save_weights(tmp_path / "m.weights.h5")
    tables = make_table("Adagrad"), make_table("Adagrad")
    before = [snapshot(table) for table in tables]
    with pytest.raises(ValueError, match=r"layer 'pair': table 'items'.*state_widths"):
        model(*tables).load_weights(tmp_path / "m.weights.h5")
    assert [snapshot(table) for table in tables] == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: {"keys": np.array([1, 2, 1])}, "id 1 is repeated"),
        (lambda s: {"keys": np.array([1, 2])}, r"of 2 keys must have the shape \[2, 4\]"),
        (lambda s: {"seed": np.array([1, 2])}, "items.*its seed must be one number"),
        (lambda s: {"origin": s["origin"][:2]}, "not its own"),
    ],
)
def test_saved_model_with_damaged_variables(tmp_path, damaged, change, words):
    tf.saved_model.save(model_of(make_table()), str(tmp_path / "whole"))
    path = tf.train.Checkpoint(model_of(damaged(change))).save(str(tmp_path / "damaged"))
    for suffix in (".index", ".data-00000-of-00001"):
        target = tmp_path / "whole" / "variables" / f"variables{suffix}"
        target.write_bytes((tmp_path / f"{path.rsplit('/', 1)[-1]}{suffix}").read_bytes())
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"(?s){words}"):
        tf.saved_model.load(str(tmp_path / "whole"))
