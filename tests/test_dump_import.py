# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows of SOK 2, of numpy and of Parquet."""

import string

import keras
import kinds
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import tensorflow as tf

import sok
from sok import checkpoint

KEYS = np.asarray([5, -1, 2**40, 0, -(2**63)])
ROWS = np.arange(15, dtype=np.float32).reshape(5, 3)
EXPECTED = dict(zip(KEYS.tolist(), ROWS, strict=True))
_NUMBERS = {"int32": 0, "int64": 1, "uint32": 2, "uint64": 3, "float16": 4, "float32": 5, "float64": 6}


def sok2_file(path, array, kind, table="", dtype=None, state=""):
    """A file as SOK 2 writes it: 256 + 4 + 32 + 4 bytes of header, then the array."""
    number = _NUMBERS[array.dtype.name] if dtype is None else dtype
    header = table.rjust(256).encode() + kind.to_bytes(4, "big") + state.rjust(32).encode() + number.to_bytes(4, "big")
    assert len(header) == 296
    path.write_bytes(header + array.tobytes())


def sok2_dump(folder, name, keys, values, table="", optimizer="", states=()):
    """states: arrays by SOK 2's names of them."""
    stem = "".join("_" if c in string.punctuation else c for c in name)
    sok2_file(folder / f"{stem}-key", keys, 0, table)
    sok2_file(folder / f"{stem}-weight", values, 1, table)
    for state, array in dict(states).items():
        sok2_file(folder / f"{stem}-{optimizer}-{state}", array, 2, table, state=state)


@pytest.mark.parametrize("table_name", ["", "my table_0", "my table:0"])
def test_dumps_of_sok2(tmp_path, table_name):
    sok2_dump(tmp_path, "my table:0", KEYS, ROWS, table_name)
    order = np.asarray([1, 3, 0, 2])
    sok2_dump(tmp_path, "static", order.astype(np.uint64), ROWS[:4].astype(np.float16)[order])
    hashed = sok.DynamicVariable(3, name="my table:0")
    static = sok.Variable(np.zeros((4, 3), np.float32), name="static")
    assert checkpoint.load_sok2(tmp_path, [hashed, static]) == {"my table:0": 5, "static": 4}
    kinds.assert_rows(kinds.export_as_dict(hashed), EXPECTED)
    np.testing.assert_array_equal(sok.export(static)[1], ROWS[:4])


def test_one_table_under_two_names_of_sok2(tmp_path):
    for name in ("x", "y"):
        sok2_dump(tmp_path, name, np.arange(3), np.ones((3, 2), np.float32))
    table = sok.DynamicVariable(2)
    with pytest.raises(ValueError, match="load_vars has one table under the names 'x' and 'y'"):
        sok.checkpoint.load_sok2(tmp_path, {"x": table, "y": table})
    assert table.size == [0, 2]


def test_damaged_dumps_of_sok2(tmp_path):
    table = sok.DynamicVariable(3, name="t")
    sok.assign(table, [7], [[1.0, 2.0, 3.0]])

    def refused(match):
        with pytest.raises(ValueError, match=match):
            checkpoint.load_sok2(tmp_path, table)
        kinds.assert_rows(kinds.export_as_dict(table), {7: [1.0, 2.0, 3.0]})

    refused("t-weight is missing")
    sok2_dump(tmp_path, "t", KEYS, ROWS, table="other")
    refused("t-weight belongs to the table 'other', not 't'")
    sok2_dump(tmp_path, "t", KEYS, ROWS)
    (tmp_path / "t-weight").write_bytes((tmp_path / "t-weight").read_bytes()[:-2])
    refused("t-weight was cut: 58 bytes are no whole numbers of float32")
    (tmp_path / "t-weight").write_bytes(b"x" * 100)
    refused("t-weight has 100 bytes, less than the header of 296")
    sok2_dump(tmp_path, "t", KEYS, ROWS[:4])
    refused("t-key has 5 keys, t-weight 4 rows")
    sok2_dump(tmp_path, "t", KEYS, ROWS[:, :2].copy())
    refused("t-weight has 10 numbers, which are no rows of 3")
    sok2_dump(tmp_path, "t", np.zeros(5, np.int64), ROWS)
    refused("t-key: the id 0 occurs twice")
    sok2_file(tmp_path / "t-key", KEYS, 2)
    sok2_file(tmp_path / "t-weight", ROWS, 1)
    refused("t-key is a file of the kind 2, not of keys")
    sok2_file(tmp_path / "t-key", KEYS, 0, dtype=9)
    refused("t-key has the type 9; known are")
    sok2_dump(tmp_path, "t", np.asarray([1, 2, 3, 4, 2**63], np.uint64), ROWS)
    refused("t-key: the id 9223372036854775808 at position 4 does not fit the key type int64 of the table 't'")


SOK2_STATES = {
    "momentum": (lambda: keras.optimizers.SGD(0.1, momentum=0.9), "SGD", {"momentum": "momentum"}),
    "adagrad": (lambda: keras.optimizers.Adagrad(0.1), "Adagrad", {"accumulator": "accumulator"}),
    "adam": (lambda: keras.optimizers.Adam(0.1), "Adam", {"m": "m", "v": "v"}),
    "adam_amsgrad": (
        lambda: keras.optimizers.Adam(0.1, amsgrad=True), "Adam", {"m": "m", "v": "v", "vhat": "v_hat"}
    ),
    "adamax": (lambda: keras.optimizers.Adamax(0.1), "Adam", {"m": "m", "v": "u"}),
    "adadelta": (
        lambda: keras.optimizers.Adadelta(0.1), "Adadelta",
        {"accum_grad": "accumulated_grad", "accum_var": "accumulated_delta"},
    ),
    "ftrl": (lambda: keras.optimizers.Ftrl(0.1), "Ftrl", {"accumulator": "accumulator", "linear": "linear"}),
}  # fmt: skip


def arrays_of(states):
    return {state: (100.0 * i + ROWS).astype(np.float32) for i, state in enumerate(states)}


@pytest.mark.parametrize("rule", SOK2_STATES)
def test_states_of_sok2(tmp_path, rule):
    """Each under our name, in the rows of its key, whatever their order in the table."""
    make, called, names = SOK2_STATES[rule]
    arrays = arrays_of(names)
    sok2_dump(tmp_path, "t", KEYS, ROWS, optimizer=called, states=arrays)
    table, optimizer = sok.DynamicVariable(3, name="t"), sok.OptimizerWrapper(make())
    sok.assign(table, [77], [[9.0, 9.0, 9.0]])
    assert checkpoint.load_sok2(tmp_path, table, optimizer) == {"t": 5}
    found = sok.check_out(table)
    ids = found.pop("ids").tolist()
    assert set(found) == {"values", *(f"{rule}.{ours}" for ours in names.values())}
    order = [ids.index(key) for key in KEYS.tolist()]
    for theirs, ours in names.items():
        np.testing.assert_array_equal(found[f"{rule}.{ours}"][order], arrays[theirs])
    np.testing.assert_array_equal(found["values"][order], ROWS)
    # A row that SOK 2 did not have starts as the optimizer says.
    fresh = {"accumulator": 0.1}
    for ours in names.values():
        np.testing.assert_allclose(found[f"{rule}.{ours}"][ids.index(77)], fresh.get(ours, 0.0))


def test_training_goes_on_with_the_states_of_sok2(tmp_path):
    """One step of Adagrad from an accumulator that SOK 2 has left."""
    accumulated = np.full((5, 3), 4.0)
    sok2_dump(tmp_path, "t", KEYS, ROWS, optimizer="Adagrad", states={"accumulator": accumulated})
    table = sok.DynamicVariable(3, name="t")
    optimizer = sok.OptimizerWrapper(keras.optimizers.Adagrad(0.5))
    checkpoint.load_sok2(tmp_path, {"t": table}, optimizer)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(3.0 * sok.lookup_sparse(table, KEYS[:, None]))
    optimizer.apply_gradients(zip(tape.gradient(loss, [table]), [table], strict=True))
    found = kinds.export_as_dict(table)
    for key, row in EXPECTED.items():
        np.testing.assert_allclose(found[key], row - 0.5 * 3.0 / np.sqrt(4.0 + 9.0), rtol=1e-6)


def test_a_static_table_and_its_states_of_sok2(tmp_path):
    order = np.asarray([1, 3, 0, 2])
    sok2_dump(
        tmp_path, "static", order.astype(np.uint64), ROWS[:4][order], optimizer="Adagrad",
        states={"accumulator": (10.0 + ROWS[:4])[order].astype(np.float64)},
    )  # fmt: skip
    static = sok.Variable(np.zeros((4, 3), np.float32), name="static")
    checkpoint.load_sok2(tmp_path, static, sok.OptimizerWrapper(keras.optimizers.Adagrad(0.1)))
    found = sok.check_out(static)
    rows = np.argsort(found["ids"])
    np.testing.assert_array_equal(found["values"][rows], ROWS[:4])
    np.testing.assert_array_equal(found["adagrad.accumulator"][rows], 10.0 + ROWS[:4])


def test_states_of_sok2_that_do_not_fit(tmp_path):
    table = sok.DynamicVariable(3, name="t")
    sok.assign(table, [7], [[1.0, 2.0, 3.0]])
    adam = sok.OptimizerWrapper(keras.optimizers.Adam(0.1))
    states = arrays_of(["m", "v"])

    def refused(match, optimizer=adam, error=ValueError):
        with pytest.raises(error, match=match):
            checkpoint.load_sok2(tmp_path, table, optimizer)
        kinds.assert_rows(kinds.export_as_dict(table), {7: [1.0, 2.0, 3.0]})
        assert set(table.table.planes()) == {"values"}

    sok2_dump(tmp_path, "t", KEYS, ROWS, optimizer="Adam", states={"m": states["m"]})
    refused("other states than those of adam; missing: t-Adam-v$")
    sok2_dump(tmp_path, "t", KEYS, ROWS, optimizer="Adam", states=states)
    refused(
        "other states than those of adagrad; missing: t-Adagrad-accumulator; not one of them: t-Adam-m, t-Adam-v",
        sok.OptimizerWrapper(keras.optimizers.Adagrad(0.1)),
    )
    refused("states than those of sgd; not one of them: t-Adam-m", sok.OptimizerWrapper(keras.optimizers.SGD(0.1)))
    refused("no optimizer like rmsprop, and its states are t-Adam-m, t-Adam-v",
            sok.OptimizerWrapper(keras.optimizers.RMSprop(0.1)))  # fmt: skip
    refused("must be a sok.OptimizerWrapper, got Adam", keras.optimizers.Adam(0.1), TypeError)
    sok2_dump(tmp_path, "t", KEYS, ROWS, optimizer="Adam", states=states | {"v": ROWS[:4]})
    refused("t-Adam-v has 12 numbers; 5 keys of dimension 3 need 15")
    sok2_file(tmp_path / "t-Adam-v", ROWS, 2, state="m")
    refused("t-Adam-v is of the state 'm', not 'v'")
    sok2_file(tmp_path / "t-Adam-v", ROWS, 1, state="v")
    refused("t-Adam-v is a file of the kind 1, not of states")
    sok2_file(tmp_path / "t-Adam-v", ROWS, 2, "other", state="v")
    refused("t-Adam-v belongs to the table 'other', not 't'")
    sok2_file(tmp_path / "t-Adam-v", ROWS, 2, state="v", dtype=1)
    refused("t-Adam-v has the type 1; known are")
    sok2_file(tmp_path / "t-Adam-v", ROWS, 2, state="v")
    (tmp_path / "t-Adam-v").write_bytes((tmp_path / "t-Adam-v").read_bytes()[:-1])
    refused("t-Adam-v was cut")


def test_states_of_sok2_that_start_anew(tmp_path):
    table, adam = sok.DynamicVariable(3, name="t"), sok.OptimizerWrapper(keras.optimizers.Adam(0.1))
    sok2_dump(tmp_path, "t", KEYS, ROWS)
    with pytest.warns(UserWarning, match="has no states of the table 't': they start anew"):
        checkpoint.load_sok2(tmp_path, table, adam)
    sok2_dump(tmp_path, "t", KEYS, ROWS, optimizer="Adam", states=arrays_of(["m", "v"]))
    with pytest.warns(UserWarning, match="which start anew: t-Adam-m, t-Adam-v; pass the optimizer"):
        checkpoint.load_sok2(tmp_path, table)
    assert set(table.table.planes()) == {"values"}
    kinds.assert_rows(kinds.export_as_dict(table), EXPECTED)


def test_numpy(tmp_path):
    table = sok.DynamicVariable(3)
    assert checkpoint.load_rows(table, KEYS, ROWS.astype(np.float64)) == 5
    kinds.assert_rows(kinds.export_as_dict(table), EXPECTED)
    with pytest.raises(ValueError, match=r"takes ids \[n\] and values \[n, 3\], got \[5\] and \[5, 2\]"):
        checkpoint.load_rows(table, KEYS, ROWS[:, :2])
    with pytest.raises(ValueError, match="the id 5 occurs twice"):
        checkpoint.load_rows(table, [5, 6, 5], np.zeros((3, 3)))
    with pytest.raises(TypeError, match="values must be numbers, got string"):
        checkpoint.load_rows(table, [0], [["a", "b", "c"]])
    with pytest.raises(TypeError, match="ids have dtype float64"):
        checkpoint.load_rows(table, [0.5], np.zeros((1, 3)))
    kinds.assert_rows(kinds.export_as_dict(table), EXPECTED)


@pytest.mark.parametrize("kind", ["list", "fixed", "large", "half"])
def test_parquet(tmp_path, kind):
    type_ = {
        "list": pyarrow.list_(pyarrow.float32()),
        "fixed": pyarrow.list_(pyarrow.float32(), 3),
        "large": pyarrow.large_list(pyarrow.float64()),
        "half": pyarrow.list_(pyarrow.float32()),
    }[kind]
    data = pyarrow.table({"id": pyarrow.array(KEYS), "row": pyarrow.array(ROWS.tolist(), type_)})
    pyarrow.parquet.write_table(data, tmp_path / "rows.parquet")
    path = tmp_path if kind == "half" else tmp_path / "rows.parquet"
    table = sok.DynamicVariable(3)
    assert checkpoint.load_parquet(table, path, key="id", vector="row") == 5
    kinds.assert_rows(kinds.export_as_dict(table), EXPECTED)


def test_parquet_that_does_not_fit(tmp_path):
    table = sok.DynamicVariable(3)
    data = pyarrow.table({"key": KEYS[:2], "vector": [[1.0, 2.0, 3.0], [1.0]], "word": ["a", "b"], "none": [None, 1]})
    pyarrow.parquet.write_table(data, tmp_path / "x.parquet")
    for columns, match in (
        ({}, "a vector has 1 numbers, the table .* has dimension 3"),
        ({"key": "id"}, "has no column 'id'; it has key, vector, word, none"),
        ({"key": "word"}, "the column 'word' is string; ids are integers"),
        ({"key": "none"}, "may not have nulls"),
        ({"vector": "key"}, "the column 'key' is int64; rows are lists of numbers"),
    ):
        with pytest.raises(ValueError, match=match):
            checkpoint.load_parquet(table, tmp_path / "x.parquet", **columns)
    assert table.size == [0, 3]
