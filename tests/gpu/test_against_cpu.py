# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Every op on a GPU against the same op on the CPU, on equal tables and equal data.

Initial values agree bit for bit; sums may differ in their order, hence in rounding.
"""

import zlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from world import SEED

import sok
from sok.optimizers import rules
from sok.stages import update as update_stage

DEVICES = ("/CPU:0", "/GPU:0")
WIDTHS = (1, 2, 3, 4, 5, 8, 16, 17, 31, 33, 64, 96, 127, 128, 129, 200, 256, 260, 520, 1025)
TOLERANCE = {"float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}


@pytest.fixture(autouse=True)
def _errors_at_once():
    sok.debug_sync(True)
    yield
    sok.debug_sync(False)


@pytest.fixture
def soft():
    # Keras's metrics and data sets have ops without a GPU kernel; the table's device is asserted.
    tf.config.set_soft_device_placement(True)


def ragged_ids(rng, bags, most, high):
    lengths = rng.integers(0, most + 1, bags)
    lengths[rng.integers(0, bags, 3)] = 0
    ids = rng.integers(-high, high, lengths.sum()).astype(np.int64)
    return tf.RaggedTensor.from_row_lengths(ids, lengths.astype(np.int64))


def on(device, function):
    with tf.device(device):
        return function()


def table_pair(width, dtype, **options):
    return [
        on(d, lambda: sok.DynamicVariable(width, "normal", dtype=dtype, seed=11, name="t", **options))
        for d in DEVICES
    ]


def sorted_rows(table):
    content = sok.check_out(table)
    order = np.argsort(content["ids"])
    return {name: np.asarray(values, np.float64)[order] if name != "ids" else values[order]
            for name, values in content.items()}


def assert_equal_tables(a, b, tolerance):
    a, b = sorted_rows(a), sorted_rows(b)
    assert set(a) == set(b)
    np.testing.assert_array_equal(a["ids"], b["ids"])
    for name in a:
        np.testing.assert_allclose(b[name], a[name], rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_lookup_and_gradients(dtype, combiner, weighted):
    rng = np.random.default_rng(zlib.crc32(f"{dtype} {combiner} {weighted} {SEED}".encode()))
    tolerance = TOLERANCE[dtype]
    for width in WIDTHS:
        ids = ragged_ids(rng, 57, 9, 40)
        weights = ids.with_values(
            tf.constant(rng.uniform(0.5, 1.5, ids.flat_values.shape), tf.float32)
        ) if weighted else None
        upstream = rng.normal(size=(57, width)).astype(np.float32)
        results = []
        for device, table in zip(DEVICES, table_pair(width, dtype)):
            with tf.device(device), tf.GradientTape() as tape:
                if weighted:
                    tape.watch(weights.values)
                out = sok.lookup_sparse(table, ids, weights, combiner)
                assert out.device.endswith(device[1:]), out.device
                loss = tf.reduce_sum(tf.cast(out, tf.float32) * upstream)
            sources = [table] + ([weights.values] if weighted else [])
            gradients = tape.gradient(loss, sources)
            keys = gradients[0].indices.numpy()
            order = np.argsort(keys)
            results.append(
                {
                    "out": tf.cast(out, tf.float32).numpy(),
                    "keys": keys[order],
                    "grad": gradients[0].values.numpy()[order],
                    "rows": sorted_rows(table),
                    "weights": gradients[1].numpy() if weighted else 0.0,
                }
            )
        cpu, gpu = results
        np.testing.assert_array_equal(cpu["keys"], gpu["keys"])
        np.testing.assert_array_equal(cpu["rows"]["ids"], gpu["rows"]["ids"])
        np.testing.assert_array_equal(cpu["rows"]["values"], gpu["rows"]["values"])
        for name in ("out", "grad", "weights"):
            np.testing.assert_allclose(
                gpu[name], cpu[name], rtol=tolerance, atol=10 * tolerance, err_msg=f"{name} {width}"
            )


@pytest.mark.parametrize("reach", ["local", "global"])
@pytest.mark.parametrize("rule", sorted(update_stage.OPTIMIZERS))
def test_optimizers(rule, reach):
    rng = np.random.default_rng([5, SEED])
    names = update_stage.OPTIMIZERS[rule]["hyper"]
    hyper = dict.fromkeys(names, 0.0)
    hyper.update(
        {
            "learning_rate": 0.1, "weight_decay": 0.01, "epsilon": 1e-5, "rho": 0.9, "beta_1": 0.9,
            "beta_2": 0.99, "momentum": 0.8, "initial_accumulator_value": 0.1,
            "learning_rate_power": -0.5, "l1_regularization_strength": 0.01,
        }
    )
    vector = tf.constant([hyper[name] for name in names], tf.float32)
    for width in (1, 3, 4, 64, 130):
        for dtype in ("float32", "bfloat16"):
            pair = table_pair(width, dtype)
            for step in range(1, 5):
                keys = rng.integers(-20, 20, 25).astype(np.int64)  # with repeats
                values = rng.normal(size=(25, width)).astype(np.float32)
                for device, table in zip(DEVICES, pair):
                    with tf.device(device):
                        update_stage.update(
                            [
                                update_stage.TableStep(
                                    table.table,
                                    tf.IndexedSlices(tf.constant(values), tf.constant(keys)),
                                    rule,
                                    tf.identity(vector),
                                    reach,
                                    update_stage.initial_of(rule, hyper.get),
                                )
                            ],
                            tf.constant(step, tf.int64),
                            scale=0.5,
                        )
            assert_equal_tables(*pair, 1e-4 if dtype == "float32" else 3e-2)


def test_growth_erase_and_reuse():
    rng = np.random.default_rng([3, SEED])
    pair = table_pair(6, "float32", capacity=16)
    for round_ in range(6):
        ids = rng.integers(-(10 ** (round_ + 1)), 10 ** (round_ + 1), 10_000).astype(np.int64)
        for device, table in zip(DEVICES, pair):
            with tf.device(device):
                sok.lookup_sparse(table, tf.constant(ids[:, None]))
                sok.erase(table, tf.constant(ids[::3]))
        assert pair[0].size == pair[1].size
        assert_equal_tables(*pair, 0)


def test_sentinel_keys_and_collisions():
    limits = np.iinfo(np.int64)
    keys = np.array([-1, 0, 1, -2, -3, -4, limits.min, limits.min + 1, limits.max - 1, limits.max])
    for collide in (False, True):
        pair = table_pair(3, "float32", _collide=collide)
        for device, table in zip(DEVICES, pair):
            with tf.device(device):
                sok.lookup_sparse(table, tf.constant(keys[:, None]))
                sok.lookup_sparse(table, tf.constant(np.arange(300)[:, None]))
        assert pair[1].size == [len(set(keys) | set(range(300))), 3]
        assert_equal_tables(*pair, 0)


def test_unknown_ids_read_the_default_and_change_nothing():
    for default in ("initial", "zeros", [1.0, 2.0, 3.0]):
        outs = []
        for device, table in zip(DEVICES, table_pair(3, "float32", default=default)):
            with tf.device(device):
                outs.append(
                    sok.lookup_sparse(table, tf.constant([[5, 6], [7, 7]]), combiners="sum", training=False).numpy()
                )
            assert table.size == [0, 3]
        np.testing.assert_allclose(outs[0], outs[1], rtol=1e-6)


def test_static_out_of_range():
    for device in DEVICES:
        with tf.device(device):
            table = sok.Variable(np.arange(8, dtype=np.float32).reshape(4, 2))
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"id 4 at position 1 .* 4 rows"):
                sok.lookup_sparse(table, tf.constant([[0, 4]]))
            np.testing.assert_array_equal(
                sok.lookup_sparse(table, tf.constant([[3]])).numpy(), [[6.0, 7.0]]
            )
            zero = sok.Variable(np.ones((4, 2), np.float32), out_of_range="zero")
            np.testing.assert_array_equal(
                sok.lookup_sparse(zero, tf.constant([[4]]), combiners="sum").numpy(), [[0.0, 0.0]]
            )
            clip = sok.Variable(np.arange(8, dtype=np.float32).reshape(4, 2), out_of_range="clip")
            np.testing.assert_array_equal(
                sok.lookup_sparse(clip, tf.constant([[-5, 99]]), combiners="sum").numpy(), [[6.0, 8.0]]
            )


def test_bounded_table_refuses_and_stays():
    for device in DEVICES:
        with tf.device(device):
            table = sok.DynamicVariable(2, max_capacity=5)
            sok.lookup_sparse(table, tf.constant([[1], [2], [3]]))
            with pytest.raises(tf.errors.ResourceExhaustedError, match="max_capacity"):
                sok.lookup_sparse(table, tf.constant([[4], [5], [6]]))
            assert table.size == [3, 2]
            sok.lookup_sparse(table, tf.constant([[4], [5], [4], [1], [2], [3]]))
            assert table.size == [5, 2]


@pytest.mark.parametrize("optimizer", ["SGD", "Adagrad", "Adam"])
@pytest.mark.usefixtures("soft")
def test_fit_follows_the_cpu(optimizer):
    rng = np.random.default_rng([1, SEED])
    ids = rng.integers(0, 500, (2048, 3)).astype(np.int64)
    labels = (ids.sum(axis=1) % 2).astype(np.float32)[:, None]
    losses = []
    for device in DEVICES:
        keras.utils.set_random_seed(7)
        with tf.device(device):
            model = keras.Sequential(
                [
                    keras.Input((3,), dtype="int64"),
                    sok.layers.DistributedEmbedding(8, seed=3),
                    keras.layers.Dense(16, "relu"),
                    keras.layers.Dense(1),
                ]
            )
        # Outside of the scope: data sets live on the host.
        model.compile(
            optimizer=sok.OptimizerWrapper(getattr(keras.optimizers, optimizer)(0.01)),
            loss=keras.losses.BinaryCrossentropy(from_logits=True),
            jit_compile="auto",
        )
        history = model.fit(ids, labels, batch_size=256, epochs=3, shuffle=False, verbose=0)
        losses.append(history.history["loss"])
        assert model.layers[0].table.handle.device.endswith(device[1:])
    np.testing.assert_allclose(losses[0], losses[1], rtol=2e-3)


def test_rules_have_keras_optimizers():
    assert set(rules.supported()) >= {"SGD", "Adagrad", "Adam"}
