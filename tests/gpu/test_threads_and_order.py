# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Several threads on one table; errors that come later; sums in one order."""

import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
from world import SEED

import sok


@pytest.fixture(autouse=True)
def _on_the_gpu():
    with tf.device("/GPU:0"):
        yield


def test_threads_look_up_and_train_one_table():
    table = sok.DynamicVariable(8, "normal", seed=3, capacity=16)
    expected = sok.DynamicVariable(8, "normal", seed=3)
    batches = np.random.default_rng([9, SEED]).integers(0, 5000, (4, 50, 300))
    errors = []

    def work(own):
        try:
            for ids in own:
                with tf.device("/GPU:0"):
                    rows = sok.lookup_sparse(table, tf.constant(ids[:, None]))
                    assert rows.device.endswith("GPU:0")
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(own,)) for own in batches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert table.size == [len(np.unique(batches)), 8]
    ids, rows = sok.export(table)
    np.testing.assert_array_equal(rows, sok.lookup_sparse(expected, ids[:, None]))


def test_without_debug_sync_an_error_comes_with_a_later_op_and_nothing_is_updated():
    sok.debug_sync(False)
    table = sok.Variable(np.ones((4, 2), np.float32))
    optimizer = sok.OptimizerWrapper(keras.optimizers.SGD(1.0))
    with pytest.raises(tf.errors.InvalidArgumentError, match="id 9 at position 1"):  # noqa: PT012
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(sok.lookup_sparse(table, tf.constant([[0], [9]])))
        optimizer.apply_gradients([(tape.gradient(loss, table), table)])
        for _ in range(100):  # the record is in the host's memory once the kernel has run
            loss.numpy()
            sok.lookup_sparse(table, tf.constant([[0]]))
    np.testing.assert_array_equal(sok.export(table)[1], np.ones((4, 2)))


@pytest.mark.parametrize("rule", ["SGD", "Adagrad", "Adam"])
@pytest.mark.parametrize("options", [{}, {"clipnorm": 0.5}], ids=["fused", "merged"])
def test_deterministic_gives_the_same_bits_in_every_run(rule, options):
    rng = np.random.default_rng([4, SEED])
    ids = (rng.zipf(1.2, (4, 4096, 5)) % 1000).astype(np.int64)
    upstream = rng.normal(size=(4096, 16)).astype(np.float32)

    def run():
        table = sok.DynamicVariable(16, "normal", seed=3)
        optimizer = sok.OptimizerWrapper(getattr(keras.optimizers, rule)(0.1, **options))
        for batch in ids:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(sok.lookup_sparse(table, tf.constant(batch), combiners="mean") * upstream)
            optimizer.apply_gradients([(tape.gradient(loss, table), table)])
        content = sok.check_out(table)
        order = np.argsort(content["ids"])
        return {name: np.asarray(values)[order] for name, values in content.items()}

    sok.deterministic(True)
    try:
        first, *others = [run() for _ in range(3)]
    finally:
        sok.deterministic(False)
    for other in others:
        for name, values in first.items():
            np.testing.assert_array_equal(other[name], values, err_msg=name)


def test_out_of_memory_is_an_error_and_the_table_lives_on():
    table = sok.DynamicVariable(64, "ones")
    sok.lookup_sparse(table, tf.constant([[1], [2]]))
    with pytest.raises(tf.errors.ResourceExhaustedError, match="bytes asked for"):
        sok.Variable(shape=(2**31, 64), initializer="ones")  # 512 GiB
    sok.lookup_sparse(table, tf.constant([[3]]))
    assert table.size == [3, 64]
