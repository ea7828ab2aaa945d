# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables of var_type "hybrid": a GPU keeps further rows in the host's memory. Where rows are changes
nothing about them."""

import keras
import kinds
import numpy as np
import pytest
import tensorflow as tf
from world import ON_GPU

import sok

STEPS, BATCH = 6, 300


def _trained(width, **storage):
    """A table and its optimizer after steps in which every id is new or comes once: no sum has an order."""
    table = sok.DynamicVariable(width, seed=3, name="rows", **storage)
    optimizer = sok.OptimizerWrapper(keras.optimizers.Adam(0.1))
    rng = np.random.default_rng(5)
    for step in range(STEPS):
        ids = tf.constant(rng.permutation(200 * 2**step)[:BATCH], tf.int64)
        with tf.GradientTape() as tape:
            rows = sok.lookup_sparse(table, ids[:, None], combiners="sum")
            loss = tf.reduce_sum(rows**2)
        optimizer.apply_gradients([(tape.gradient(loss, table), table)])
    return table, optimizer


def _pinned(table):
    return sok.stats(table)["rows"]["pinned_bytes"]


# Rows of 512 bytes and more are copied by an engine of their own, rows of odd widths element by element.
@pytest.mark.parametrize("width", [3, 64, 128])
@pytest.mark.parametrize("share", ["none", "some", "all"])
def test_rows_are_the_same_wherever_they_are(width, share):
    expected, _ = _trained(width)
    budget = {"none": 0, "some": 100 * width * 4, "all": None}[share]
    table, _ = _trained(width, var_type="hybrid", max_hbm_for_vectors=budget)
    found, wanted = kinds.export_as_dict(table), kinds.export_as_dict(expected)
    assert found.keys() == wanted.keys()
    for key, row in wanted.items():
        np.testing.assert_array_equal(found[key], row)
    for training in (True, False):
        ids = tf.range(0, 7000, 7, tf.int64)[:, None]
        np.testing.assert_array_equal(
            sok.lookup_sparse(table, ids, training=training), sok.lookup_sparse(expected, ids, training=training)
        )
    assert _pinned(expected) == 0
    if ON_GPU and budget is not None:
        counters = sok.stats(table)["rows"]
        of_rows = counters["rows"] * 3 * width * 4  # values and Adam's two states
        assert counters["pinned_bytes"] >= of_rows - budget
    else:
        assert _pinned(table) == 0


def test_rows_are_erased_and_come_back_in_host_memory():
    table, _ = _trained(8, var_type="hybrid", max_hbm_for_vectors=0)
    rows = kinds.export_as_dict(table)
    gone = sorted(rows)[::3]
    sok.erase(table, gone)
    assert kinds.export_as_dict(table).keys() == rows.keys() - set(gone)
    new = np.arange(10**6, 10**6 + 5000)
    sok.assign(table, new, np.tile(new[:, None], (1, 8)).astype(np.float32))
    held = kinds.export_as_dict(table)
    for key in rows.keys() - set(gone):
        np.testing.assert_array_equal(held[key], rows[key])
    for key in new.tolist():
        np.testing.assert_array_equal(held[key], np.full(8, key, np.float32))


@pytest.mark.parametrize("budget", [0, 2000])
def test_a_dump_of_one_kind_loads_into_the_other(tmp_path, budget):
    table, optimizer = _trained(8)
    sok.dump(str(tmp_path / "hbm"), table, optimizer)
    hybrid = sok.DynamicVariable(8, name="rows", var_type="hybrid", max_hbm_for_vectors=budget)
    sok.load(str(tmp_path / "hbm"), hybrid, sok.OptimizerWrapper(keras.optimizers.Adam(0.1)))
    sok.dump(str(tmp_path / "hybrid"), hybrid)
    again = sok.DynamicVariable(8, name="rows")
    sok.load(str(tmp_path / "hybrid"), again)
    wanted, found = kinds.export_as_dict(table), kinds.export_as_dict(again)
    assert found.keys() == wanted.keys()
    assert all(np.array_equal(found[key], wanted[key]) for key in wanted)
    assert (_pinned(hybrid) > 0) == ON_GPU


def test_a_layer_hands_its_budget_on():
    layer = sok.layers.DistributedEmbedding(4, var_type="hybrid", max_hbm_for_vectors=10**6)
    copy = type(layer).from_config(layer.get_config())
    assert copy.table.attributes.device_bytes == 10**6
    assert sok.DynamicVariable(4, var_type="hybrid").attributes.device_bytes == 2**63 - 1
    assert sok.DynamicVariable(4).attributes.device_bytes == -1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"max_hbm_for_vectors": 5}, "max_hbm_for_vectors is for var_type='hybrid': with 'hbm' a GPU"),
        ({"var_type": "hbm", "max_hbm_for_vectors": 0}, "max_hbm_for_vectors is for var_type='hybrid'"),
        ({"var_type": "hybrid", "max_hbm_for_vectors": -1}, "a whole number of at least 0, got -1"),
        ({"var_type": "hybrid", "max_hbm_for_vectors": 1.5}, "a whole number of at least 0, got 1.5"),
        ({"var_type": "hybrid", "max_hbm_for_vectors": 2**63}, "must be below 2\\*\\*63"),
    ],
)
def test_a_budget_that_is_none(arguments, words):
    for make in (
        lambda: sok.DynamicVariable(4, **arguments),
        lambda: sok.TableConfig("t", 4, **arguments),
        lambda: sok.layers.DistributedEmbedding(4, **arguments),
    ):
        with pytest.raises(ValueError, match=words):
            make()


def test_static_tables_have_one_memory():
    with pytest.raises(ValueError, match="var_type is for hash tables"):
        sok.TableConfig("t", 4, vocabulary_size=5, var_type="hybrid")
