# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""A load that is refused leaves nothing behind: no row, no state, no seed; and the right one works afterwards."""

import keras
import kinds
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf
from test_dump_hostile import read, shard_of, write

import sok
from sok.checkpoint import manifest

IDS = np.asarray([[1, -1], [2**40, 5], [0, 9]])


def train(table, optimizer, ids=IDS):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum((sok.lookup_sparse(table, ids, combiners="sum") - 1.0) ** 2)
    optimizer.apply_gradients(zip(tape.gradient(loss, [table]), [table], strict=True))


def adagrad():
    return sok.OptimizerWrapper(keras.optimizers.Adagrad(0.1))


def adam():
    return sok.OptimizerWrapper(keras.optimizers.Adam(0.1))


def everything(table):
    """All that a table is, in the order of its keys."""
    state = {name: np.asarray(value) for name, value in table.table.state().items()}
    order = np.argsort(state["keys"])
    rows = {name: state[name][order].tolist() for name in ("keys", "values", "states")}
    return rows | {name: state[name].tolist() for name in state if name not in rows}


def trained_dump(folder, optimizer, name="t"):
    table = sok.DynamicVariable(4, name=name, seed=3, initializer="normal")
    train(table, optimizer)
    sok.dump(folder, table, optimizer)
    return table


def flip(dump):
    path = shard_of(dump)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def change_plane(dump, **fields):
    data = read(dump)
    data["tables"][0]["planes"][1] |= fields
    write(dump, data)


def change_width(dump, width):
    """In the file and the manifest alike."""
    data, path = read(dump), shard_of(dump)
    arrays = safetensors.numpy.load(path.read_bytes())
    arrays["adagrad.accumulator"] = np.zeros((6, width), np.float32)
    content = safetensors.numpy.save(arrays)
    path.write_bytes(content)
    table = data["tables"][0]
    table["planes"][1]["width"] = width
    table["shards"][0] |= {"bytes": len(content), "checksum": manifest.checksum(content)}
    write(dump, data)


DAMAGES = {
    "flipped": (flip, "its checksum does not fit"),
    "narrow": (lambda dump: change_width(dump, 1), "'t': 'adagrad.accumulator' has the width 1, here 4"),
    "wide": (lambda dump: change_width(dump, 8), "'t': 'adagrad.accumulator' has the width 8, here 4"),
    "nan": (lambda dump: change_plane(dump, initial=float("nan")), "'initial' is nan, which is no finite float32"),
    "inf": (lambda dump: change_plane(dump, initial=float("inf")), "'initial' is inf, which is no finite float32"),
    "1e300": (lambda dump: change_plane(dump, initial=1e300), "'initial' is 1e[+]300, which is no finite float32"),
    "huge": (lambda dump: change_plane(dump, initial=10**400), "'initial' is 10000000.*, which is no finite float32"),
}


@pytest.mark.parametrize("before", ["empty", "rows", "trained"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_dump_leaves_nothing(tmp_path, damage, before):
    """Not even states: a dump of another optimizer loads afterwards."""
    spoil, match = DAMAGES[damage]
    trained_dump(tmp_path / "bad", adagrad())
    spoil(tmp_path / "bad")
    right = trained_dump(tmp_path / "right", adam())
    table, optimizer = sok.DynamicVariable(4, name="t", seed=8), adam()
    if before == "rows":
        sok.assign(table, [7, 100], np.ones((2, 4)))
    elif before == "trained":
        train(table, optimizer, IDS + 2)
    found = everything(table)
    with pytest.raises(ValueError, match=match):
        sok.load(tmp_path / "bad", table, strict=False)
    assert everything(table) == found
    assert sok.load(tmp_path / "right", table, optimizer).rows == {"t": 6}
    assert everything(table) == everything(right)
    for _ in range(2):
        train(table, optimizer)
    assert table.size == [6, 4]


def test_the_first_training_step_after_a_refused_load_is_as_without_it(tmp_path):
    trained_dump(tmp_path, adagrad())
    change_plane(tmp_path, initial=7.0)
    flip(tmp_path)
    tables = [sok.DynamicVariable(4, name="t", seed=3, initializer="normal") for _ in range(2)]
    with pytest.raises(ValueError, match="its checksum does not fit"):
        sok.load(tmp_path, tables[0])
    for table in tables:
        train(table, adagrad())
    assert everything(tables[0]) == everything(tables[1])


@pytest.mark.parametrize("first", ["empty", "rows", "static"])
@pytest.mark.parametrize("why", ["room", "damaged"])
def test_a_table_that_is_refused_keeps_the_others_as_they_are(tmp_path, first, why):
    """Tables and an ordinary variable, of which the last table is refused."""
    make = {
        "empty": lambda: sok.DynamicVariable(4, name="a", seed=8),
        "rows": lambda: sok.DynamicVariable(4, name="a", seed=8),
        "static": lambda: sok.Variable(np.ones((50, 4), np.float32), name="a"),
    }[first]
    written, last = make(), sok.DynamicVariable(4, name="b")
    optimizer = adagrad()
    train(written, optimizer, np.asarray([[1, 2], [40, 3]]))
    train(last, optimizer)
    sok.dump(tmp_path, [written, last, tf.Variable([1.0, 2.0], name="w")])
    if why == "damaged":
        data = read(tmp_path)
        path = tmp_path / data["generation"] / data["tables"][1]["shards"][0]["file"]
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    table, weight = make(), tf.Variable([7.0, 8.0], name="w")
    refused = sok.DynamicVariable(4, name="b", max_capacity=3 if why == "room" else None)
    if first == "rows":
        sok.assign(table, [7, 100], np.ones((2, 4)))
    before = everything(table), everything(refused)
    error = tf.errors.ResourceExhaustedError if why == "room" else ValueError
    match = "table 'b': 6 rows do not fit; it takes at most 3" if why == "room" else "its checksum does not fit"
    with pytest.raises(error, match=match):
        sok.load(tmp_path, [table, refused, weight])
    assert (everything(table), everything(refused)) == before
    np.testing.assert_array_equal(weight, [7.0, 8.0])
    if why == "damaged":
        path.write_bytes(content)
    good = sok.DynamicVariable(4, name="b")
    sok.load(tmp_path, [table, good, weight])
    assert (everything(table), everything(good)) == (everything(written), everything(last))
    np.testing.assert_array_equal(weight, [1.0, 2.0])


@pytest.mark.parametrize("bounded", [False, True])
def test_rows_that_the_table_itself_refuses(bounded):
    """No state is left of them, and no row."""
    source = sok.DynamicVariable(4, name="t")
    train(source, adagrad())
    keys, (values, states) = source.table.export(("values", "adagrad.accumulator"))
    table = sok.DynamicVariable(4, name="t", max_capacity=5 if bounded else None)
    sok.assign(table, [7], np.ones((1, 4)))
    before = everything(table)
    if bounded:
        error, match = tf.errors.ResourceExhaustedError, "6 rows do not fit; it takes at most 5; it is unchanged"
    else:
        states = states[:, :1]
        error, match = tf.errors.InvalidArgumentError, "plane 'adagrad.accumulator' has width 4, not 1"
    with pytest.raises(error, match=match):
        table.table.write(keys, {"values": values, "adagrad.accumulator": states}, {}, replace=True)
    assert everything(table) == before
    train(table, adam(), np.asarray([[7, 8]]))
    assert [name.decode() for name in everything(table)["state_names"]] == ["adam.m", "adam.v"]


@pytest.mark.parametrize("initial", [float("nan"), float("inf"), 1e300])
def test_an_initial_value_that_is_no_number(initial):
    table = sok.DynamicVariable(2, name="t")
    values = {"values": np.ones((1, 2)), "adam.m": np.ones((1, 2))}
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"plane .adam\.m. must start at a finite number, got"):
        table.table.write([1], values, {"adam.m": initial}, replace=False)
    assert set(table.table.planes()) == {"values"}
    assert table.size == [0, 2]
    table.table.write([1], values, {"adam.m": 0.5}, replace=False)
    kinds.assert_rows(kinds.export_as_dict(table), {1: [1.0, 1.0]})


@pytest.mark.parametrize("why", ["variable", "damaged", "room"])
def test_an_optimizer_is_not_built_by_a_load_that_is_refused(tmp_path, why):
    """It could not be built for other variables afterwards."""
    table, weight, optimizer = sok.DynamicVariable(4, name="t"), tf.Variable([1.0, 2.0], name="w"), adam()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(sok.lookup_sparse(table, IDS, combiners="sum")) + tf.reduce_sum(weight**2)
    optimizer.apply_gradients(zip(tape.gradient(loss, [table, weight]), [table, weight], strict=True))
    sok.dump(tmp_path, [table, weight], optimizer)
    good, content = shard_of(tmp_path), shard_of(tmp_path).read_bytes()
    other, given = sok.DynamicVariable(4, name="t", max_capacity=3 if why == "room" else None), [weight]
    sok.assign(other, [7], np.ones((1, 4)))
    match, error = "table 't': 6 rows do not fit", tf.errors.ResourceExhaustedError
    if why == "variable":
        given, match, error = [weight, tf.Variable([1.0] * 3, name="x")], "has no variable 'x'", ValueError
    elif why == "damaged":
        flip(tmp_path)
        match, error = "its checksum does not fit", ValueError
    fresh = adam()
    with pytest.raises(error, match=match):
        sok.load(tmp_path, [other, *given], fresh)
    assert not fresh.built
    good.write_bytes(content)
    right, weights = sok.DynamicVariable(4, name="t"), tf.Variable([7.0, 8.0], name="w")
    sok.load(tmp_path, [right, weights], fresh)
    assert everything(right) == everything(table)
    assert int(fresh.iterations) == 1
    for mine, theirs in zip(fresh.variables, optimizer.variables, strict=True):
        np.testing.assert_array_equal(mine, theirs)
