# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""A load that is refused builds no optimizer, and takes away no states of others."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import sok
from sok.checkpoint.room import Room


class Halving(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule without a config: optimizers with it cannot be copied."""

    def __call__(self, step):
        return 0.1 * 0.5 ** tf.cast(step, tf.float32)


def adam(kind):
    if kind == "uncopyable":
        return sok.OptimizerWrapper(keras.optimizers.Adam(Halving()))
    if kind == "keras":
        return sok.OptimizerWrapper(keras.optimizers.Adam(0.1))
    if kind == "scaled":
        return sok.OptimizerWrapper(keras.optimizers.Adam(0.1), loss_scale="dynamic")
    tf_keras = pytest.importorskip("tf_keras")
    space = tf_keras.optimizers.legacy if kind == "legacy" else tf_keras.optimizers
    return sok.OptimizerWrapper(space.Adam(0.1))


def variables_of(optimizer):
    found = optimizer.variables
    return [np.asarray(tf.convert_to_tensor(v)).tolist() for v in (found() if callable(found) else found)]


def make():
    weights = [tf.Variable(np.full(n, 2.0, np.float32), name=f"w{n}") for n in (2, 3)]
    return sok.DynamicVariable(2, name="t"), *weights


def trained_dump(folder, kind):
    """Of a table and one weight, with an optimizer of two."""
    variables, optimizer = make(), adam(kind)
    table, *weights = variables
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(sok.lookup_sparse(table, [[1, 2]], combiners="sum") ** 2)
        loss += sum(tf.reduce_sum(weight**2) for weight in weights)
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
    sok.dump(folder, variables[:2], optimizer)
    return optimizer


@pytest.mark.parametrize("kind", ["keras", "scaled", "tf_keras", "legacy"])
def test_an_optimizer_of_more_variables(tmp_path, kind):
    expected = variables_of(trained_dump(tmp_path, kind))
    (table, weight, other), optimizer = make(), adam(kind)
    assert int(optimizer.iterations) == 0  # legacy ones make it when it is read
    few = len(variables_of(optimizer))
    match = r"variables of an optimizer, this one has .*build it with the same variables first \(optimizer.build\("
    for _ in range(2):
        with pytest.raises(ValueError, match=match) as caught:
            sok.load(tmp_path, [table, weight], optimizer)
        assert "make a new optimizer" not in str(caught.value)
        assert not getattr(optimizer, "built", False)
        assert len(variables_of(optimizer)) == few
        assert table.size == [0, 2]
    # As the message says.
    (optimizer._create_all_weights if kind == "legacy" else optimizer.build)([table, weight, other])
    sok.load(tmp_path, [table, weight], optimizer)
    assert variables_of(optimizer) == expected


def test_an_optimizer_of_other_shapes(tmp_path):
    """As many variables, for a weight that is not dumped."""
    small, large, optimizer = tf.Variable([1.0, 2.0], name="w"), tf.Variable([1.0] * 3, name="w"), adam("keras")
    table, trained = sok.DynamicVariable(2, name="t"), adam("keras")
    trained.build([table, large])
    sok.dump(tmp_path, {"t": table, "w": small}, trained)
    with pytest.raises(ValueError, match=r"of the optimizer is float32 \[3\], here float32 \[2\]"):
        sok.load(tmp_path, {"t": table, "w": small}, optimizer)
    assert not optimizer.built
    optimizer.build([table, large])
    sok.load(tmp_path, {"t": table, "w": small}, optimizer)


@pytest.mark.parametrize("kind", ["keras", "uncopyable"])
def test_an_optimizer_that_is_built_already(tmp_path, kind):
    """By the caller; or by the load, which cannot try with a copy."""
    expected = variables_of(trained_dump(tmp_path, kind))
    (table, weight, other), optimizer = make(), adam(kind)
    if kind == "keras":
        optimizer.build([table, weight])
    for _ in range(2):
        with pytest.raises(ValueError, match="make a new optimizer, and build it with the same variables first"):
            sok.load(tmp_path, [table, weight], optimizer)
        assert table.size == [0, 2]
    new = adam(kind)
    new.build([table, weight, other])
    sok.load(tmp_path, [table, weight], new)
    assert variables_of(new) == expected


PLANES = {"values": (2, 0.0), "adam.m": (2, 0.0), "adam.v": (2, 0.0)}


def add(table, *names):
    planes = {name: np.zeros((0, 2), np.float32) for name in ("values", *names)}
    table.table.write(np.zeros(0, np.int64), planes, dict.fromkeys(names, 0.0), replace=False)


@pytest.mark.parametrize(
    ("before", "meanwhile", "left"),
    [
        ((), (), ()),
        (("momentum.momentum",), (), ("momentum.momentum",)),
        (("adam.m",), (), ("adam.m",)),
        # Only the last ones can go.
        ((), ("momentum.momentum",), ("adam.m", "adam.v", "momentum.momentum")),
        (("adam.m",), ("momentum.momentum",), ("adam.m", "adam.v", "momentum.momentum")),
    ],
)
def test_states_that_training_adds_beside_a_block_that_fails(before, meanwhile, left):
    table = sok.DynamicVariable(2, name="t")
    add(table, *before)

    def refused():
        with Room() as room:
            room.for_planes(table.table, PLANES)
            add(table, *meanwhile)
            raise ValueError("no room")

    with pytest.raises(ValueError, match="no room"):
        refused()
    assert tuple(table.table.planes()) == ("values", *left)
