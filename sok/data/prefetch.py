# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Batches that are on the GPU before the step that reads them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from sok import _native, checks


def prefetch_to_device(dataset: tf.data.Dataset, buffer_size: int = 2, device: str | None = None) -> tf.data.Dataset:
    """The same elements, copied ahead to a GPU while earlier steps run there.

    Takes the place of `tf.data.experimental.prefetch_to_device`, whose copies wait for the kernels that are
    enqueued, tensor by tensor. Here a batch goes in one piece through pinned memory, on a stream of its own. It must
    be the last transformation. The tensors of an element share one piece of device memory: who keeps one keeps all.

    Args:
        dataset: of dense tensors, in any structure; ids of several per example go as values and row splits. Strings
            cannot be on a GPU.
        buffer_size: elements that wait on the device, at least 1. Each takes its bytes there.
        device: such as "/GPU:0". By default the first GPU; without one, elements stay where they are and are only
            prefetched, so that one script runs on both.

    Returns:
        A dataset with the same `element_spec` and cardinality, whose tensors are on the device.

    Raises:
        ValueError: a buffer of no elements, a device that is not there, or tensors that cannot be on a GPU.
        TypeError: elements that are ragged or sparse, or no dataset.

    Example:
        >>> dataset = tf.data.Dataset.range(6).batch(2)
        >>> [batch.numpy().tolist() for batch in sok.data.prefetch_to_device(dataset)]
        [[0, 1], [2, 3], [4, 5]]
    """
    if not isinstance(dataset, tf.data.Dataset):
        raise TypeError(f"dataset must be a tf.data.Dataset, got {type(dataset).__name__}")
    buffer_size = checks.whole("buffer_size", buffer_size, 1)
    specs = tf.nest.flatten(dataset.element_spec)
    for spec in specs:
        _check(spec)
    device = _known_device(device)
    if "CPU" in device:
        return dataset.prefetch(buffer_size)

    with tf.device("/CPU:0"):
        # Batches that wait on the host: while one is copied, the dataset makes the next.
        held = dataset.map(lambda *element: _native.ops.sok_hold_batch(tensors=tf.nest.flatten(element))).prefetch(1)
    handles = held.apply(tf.data.experimental.copy_to_device(device))

    # Without the attribute 32-bit integers would go back to the host's memory.
    @tf.function(
        input_signature=[tf.TensorSpec((), tf.resource)],
        experimental_attributes={"experimental_ints_on_device": True},
    )
    def copy(handle):
        return _native.ops.sok_copy_batch(
            batch=handle, types=[spec.dtype for spec in specs], shapes=[spec.shape for spec in specs]
        )

    with tf.device(device):
        variant = tf.raw_ops.ExperimentalMapDataset(
            input_dataset=tf.data.experimental.to_variant(handles),
            other_arguments=[],
            f=copy.get_concrete_function(),
            output_types=[spec.dtype for spec in specs],
            output_shapes=[spec.shape for spec in specs],
        )
        ahead = tf.data.experimental.from_variant(variant, dataset.element_spec).prefetch(buffer_size)
    # A dataset that copies from another device does not know how many elements it has, and no op on a GPU tells it.
    # Keras counts its steps by this.
    ahead.cardinality = dataset.cardinality
    return ahead


def _check(spec: Any) -> None:
    if isinstance(spec, (tf.RaggedTensorSpec, tf.SparseTensorSpec)):
        raise TypeError(f"a dataset on a GPU has dense tensors only, not {spec}: give ids as values and row splits")
    if not isinstance(spec, tf.TensorSpec):
        raise TypeError(f"a dataset on a GPU has dense tensors only, not {spec}: leave it out")
    if spec.dtype in (tf.string, tf.variant, tf.resource):
        raise ValueError(f"{spec.dtype.name} tensors cannot be on a GPU: {spec}")


def _known_device(device: str | None) -> str:
    """The full name of the logical device; by default the first GPU, or else the CPU."""
    known = tf.config.list_logical_devices("GPU") + tf.config.list_logical_devices("CPU")
    if device is None:
        return known[0].name
    names = {name: each.name for each in known for name in (each.name, each.name.replace("/device:", "/"))}
    if not isinstance(device, str) or "/" + device.lstrip("/") not in names:
        wanted = ", ".join(name for name in names if "device" not in name)
        raise ValueError(f"device must be one of {wanted}, or None for the first GPU if there is one, got {device!r}")
    return names["/" + device.lstrip("/")]
