# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Batches copied ahead to the device: what arrives, for how long it stays what it is, and what is refused."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from world import ON_GPU

import sok
from sok import _native

DTYPES = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "bool", "complex64")


def _equal(got, wanted):
    tf.nest.assert_same_structure(got, wanted)
    for g, w in zip(tf.nest.flatten(got), tf.nest.flatten(wanted), strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        assert ("GPU" in g.device) == ON_GPU
        np.testing.assert_array_equal(g.numpy(), w.numpy())


@pytest.mark.parametrize("buffer_size", [1, 2, 5])
def test_elements_arrive_in_order(rng, buffer_size):
    data = tf.data.Dataset.from_tensor_slices(
        ({"ids": rng.integers(0, 9, (103, 3)), "dense": rng.normal(size=(103, 13)).astype("float32")}, np.arange(103))
    ).batch(10)
    ahead = sok.data.prefetch_to_device(data, buffer_size)
    assert ahead.element_spec == data.element_spec
    for _ in range(2):
        batches = list(ahead)
        assert len(batches) == 11
        for got, wanted in zip(batches, data, strict=True):
            _equal(got, wanted)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (257,), (1000, 33)])
def test_every_dtype_and_odd_shapes(rng, dtype, shape):
    value = tf.constant(rng.integers(0, 2, shape).astype(dtype))
    data = tf.data.Dataset.from_tensors((value, {"again": value})).repeat(3)
    for got in sok.data.prefetch_to_device(data):
        _equal(got, (value, {"again": value}))


def test_bfloat16(rng):
    value = tf.cast(rng.normal(size=(7, 5)), tf.bfloat16)
    for got in sok.data.prefetch_to_device(tf.data.Dataset.from_tensors(value)):
        _equal(got, value)


def test_batches_that_are_kept_stay_what_they_are():
    data = tf.data.Dataset.range(60).map(lambda i: tf.fill((1 << 14,), i))
    kept = []
    for i, batch in enumerate(sok.data.prefetch_to_device(data)):
        if i % 3 != 1:
            kept.append((i, batch))
    for i, batch in kept:
        np.testing.assert_array_equal(batch.numpy(), i)


def test_a_batch_is_not_overwritten_before_the_work_on_it_is_done():
    """Each step queues much work in front of its use of the batch, then lets the batch go."""
    side = 1024 if ON_GPU else 64
    data = tf.data.Dataset.range(40).map(lambda i: tf.fill((1 << 18,), tf.cast(i, tf.float32)))
    sums, slow = [], tf.eye(side)
    for batch in sok.data.prefetch_to_device(data, 1):
        for _ in range(20):
            slow = slow @ tf.eye(side)
        sums.append(tf.reduce_max(batch * slow[0, 0]) + tf.reduce_min(batch))
        del batch
    np.testing.assert_array_equal([total.numpy() for total in sums], 2.0 * np.arange(40))


def test_batches_of_many_sizes(rng):
    sizes = rng.integers(0, 100_000, 50)
    data = tf.data.Dataset.from_tensor_slices(sizes).map(lambda n: tf.range(n))
    for n, batch in zip(sizes, sok.data.prefetch_to_device(data, 3), strict=True):
        np.testing.assert_array_equal(batch.numpy(), np.arange(n))


def test_iterators_side_by_side_and_left_early():
    data = sok.data.prefetch_to_device(tf.data.Dataset.range(100).map(lambda i: tf.fill((1000,), i)), 4)
    first, second = iter(data), iter(data)
    kept = [next(first), next(second), next(first)]
    del first
    kept.append(next(second))
    del second, data
    assert [int(batch[999]) for batch in kept] == [0, 0, 1, 1]


def test_errors_of_the_dataset_come_through():
    reciprocal = lambda i: tf.debugging.check_numerics(1.0 / tf.cast(2 - i, tf.float32), "at two")  # noqa: E731
    batches = iter(sok.data.prefetch_to_device(tf.data.Dataset.range(5).map(reciprocal)))
    assert [float(next(batches)) for _ in range(2)] == [0.5, 1.0]
    with pytest.raises(tf.errors.InvalidArgumentError, match="at two"):
        next(batches)


def test_fit_sees_the_same_batches(rng):
    ids, labels = rng.integers(0, 50, (256, 2)), rng.integers(0, 2, (256, 1)).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((ids, labels)).batch(64).repeat()

    def trained(data):
        keras.utils.set_random_seed(3)
        table = keras.Sequential(
            [keras.layers.Embedding(50, 4), keras.layers.Flatten(), keras.layers.Dense(1, "sigmoid")]
        )
        table.compile(keras.optimizers.SGD(0.1), "binary_crossentropy", jit_compile=False)
        table.fit(data, steps_per_epoch=12, epochs=2, verbose=0)
        return table.get_weights()

    for got, wanted in zip(trained(sok.data.prefetch_to_device(data)), trained(data), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_keras_counts_the_steps(rng):
    """With `fit` and `evaluate` that are not told how many steps there are."""
    ids, labels = rng.integers(0, 50, (80, 2)), rng.integers(0, 2, (80, 1)).astype("float32")
    data = sok.data.prefetch_to_device(tf.data.Dataset.from_tensor_slices((ids, labels)).batch(10))
    assert len(data) == 8
    model = keras.Sequential([keras.layers.Embedding(50, 4), keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=False)
    model.fit(data, epochs=3, validation_data=data, verbose=0)
    assert int(model.optimizer.iterations) == 24
    assert len(sok.data.prefetch_to_device(tf.data.Dataset.range(0).batch(2))) == 0


@pytest.mark.parametrize("size", [0, -1, True, 2.5, None, "2", [2], tf.data.AUTOTUNE])
def test_a_buffer_of_nothing_is_refused(size):
    with pytest.raises(ValueError, match="buffer_size must be a whole number of at least 1, got"):
        sok.data.prefetch_to_device(tf.data.Dataset.range(3), size)


def test_a_numpy_number_is_a_buffer_size():
    assert len(list(sok.data.prefetch_to_device(tf.data.Dataset.range(3), np.int64(2)))) == 3


@pytest.mark.parametrize("device", ["", "/GPU:77", "GPU", "/GPU:x", "/GPU:-1", "CPU:5", 5, b"/CPU:0"])
def test_devices_that_are_not_there_are_refused(device):
    with pytest.raises(ValueError, match=r"device must be one of .*/CPU:0, or None for the first GPU.*, got"):
        sok.data.prefetch_to_device(tf.data.Dataset.range(3), device=device)


@pytest.mark.parametrize("device", ["CPU:0", "/CPU:0", "/device:CPU:0"])
def test_a_device_may_be_named(device):
    for batch in sok.data.prefetch_to_device(tf.data.Dataset.range(3), device=device):
        assert "CPU" in batch.device
    if ON_GPU:
        for batch in sok.data.prefetch_to_device(tf.data.Dataset.range(3), device=device.replace("CPU", "GPU")):
            assert "GPU" in batch.device


@pytest.mark.parametrize("thing", [None, [1, 2], np.zeros(3), "data"])
def test_what_is_no_dataset_is_refused(thing):
    with pytest.raises(TypeError, match=rf"dataset must be a tf.data.Dataset, got {type(thing).__name__}"):
        sok.data.prefetch_to_device(thing)


def test_what_cannot_be_on_a_gpu_is_refused():
    """Whether there is a GPU or not: a script that runs on a laptop shall run there too."""
    ragged = tf.data.Dataset.from_tensors(tf.ragged.constant([[1], [2, 3]]))
    with pytest.raises(TypeError, match=r"dense tensors only, not RaggedTensorSpec.*values and row splits"):
        sok.data.prefetch_to_device(ragged)
    with pytest.raises(TypeError, match=r"dense tensors only, not NoneTensorSpec.*leave it out"):
        sok.data.prefetch_to_device(tf.data.Dataset.from_tensors((1, None)))
    with pytest.raises(ValueError, match="string tensors cannot be on a GPU"):
        sok.data.prefetch_to_device(tf.data.Dataset.from_tensors({"name": ["a"]}))


def test_handles_of_other_batches_are_refused():
    with tf.device("/CPU:0"):
        handle = _native.ops.sok_hold_batch(tensors=[tf.constant([1, 2], tf.int64)])

    def copy(types, shapes):
        with tf.device("/GPU:0" if ON_GPU else "/CPU:0"):
            return _native.ops.sok_copy_batch(batch=handle, types=types, shapes=shapes)

    np.testing.assert_array_equal(copy([tf.int64], [(2,)])[0], [1, 2])
    with pytest.raises(tf.errors.InvalidArgumentError, match="holds 1 tensors, not 2"):
        copy([tf.int64, tf.int64], [(2,), (2,)])
    for types, shapes, wanted in (([tf.int32], [(2,)], r"not int32.*\[2\]"), ([tf.int64], [(3,)], r"not int64.*\[3\]")):
        with pytest.raises(tf.errors.InvalidArgumentError, match=rf"tensor 0 is int64 of shape \[2\], {wanted}"):
            copy(types, shapes)
    with pytest.raises(tf.errors.InvalidArgumentError, match="1 types, but 0 shapes"):
        copy([tf.int64], [])
    with tf.device("/CPU:0"):
        handle = tf.stack([handle, handle])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"must be one handle, not \[2\] of them"):
        copy([tf.int64], [(2,)])
