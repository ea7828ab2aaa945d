# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Bags of ids as the kinds of tensors that users have, and tables with known rows."""

import numpy as np
import tensorflow as tf

import sok

PADDING = 99  # in no bag of these tests

KINDS = ("dense", "masked", "ragged32", "ragged64", "nested", "sparse")


def _padded(bags, value, dtype):
    width = max((len(bag) for bag in bags), default=0)
    out = np.full((len(bags), width), value, dtype)
    for b, bag in enumerate(bags):
        out[b, : len(bag)] = np.asarray(bag, dtype)
    return out


def _splits(bags):
    return np.concatenate([[0], np.cumsum([len(bag) for bag in bags])]).astype(np.int64)


def _flat(bags, dtype):
    return np.asarray([x for bag in bags for x in bag], dtype)


def make(kind, bags, dtype, padding=PADDING):
    """The bags as one tensor. "dense" needs bags of one length; "nested" splits each bag in two."""
    if kind == "dense":
        return tf.constant(np.asarray(bags, dtype).reshape(len(bags), -1 if bags else 0))
    if kind == "masked":
        return tf.constant(_padded(bags, padding, dtype))
    if kind == "sparse":
        # Columns with gaps: 3, 5, 7, ...
        indices = [[b, 3 + 2 * c] for b, bag in enumerate(bags) for c in range(len(bag))]
        return tf.SparseTensor(np.asarray(indices, np.int64).reshape(-1, 2), _flat(bags, dtype), [len(bags), 10_000])
    if kind == "nested":
        halves = [half for bag in bags for half in (bag[: len(bag) // 2], bag[len(bag) // 2 :])]
        inner = tf.RaggedTensor.from_row_splits(_flat(bags, dtype), _splits(halves))
        return tf.RaggedTensor.from_row_splits(inner, 2 * np.arange(len(bags) + 1, dtype=np.int64))
    splits = _splits(bags).astype(np.int32 if kind == "ragged32" else np.int64)
    return tf.RaggedTensor.from_row_splits(_flat(bags, dtype), splits)


def table_of(rows, key_type="int64", dtype="float32", **kwargs):
    """A hash table that holds the rows of a dict, and the dict as the table rounds it."""
    dimension = len(next(iter(rows.values())))
    table = sok.DynamicVariable(dimension, key_type=key_type, dtype=dtype, **kwargs)
    ids = np.asarray(list(rows), key_type)
    sok.assign(table, ids, np.asarray(list(rows.values()), np.float32))
    stored_ids, stored = sok.export(table)
    stored = tf.cast(stored, tf.float64).numpy()
    return table, dict(zip(stored_ids.numpy().tolist(), stored, strict=True))


def random_rows(rng, ids, dimension):
    return {int(i): rng.normal(size=dimension) for i in ids}


def slices(ids, gradients):
    """A table's gradient, as a tape gives it."""
    return tf.IndexedSlices(tf.convert_to_tensor(gradients, tf.float32), tf.constant(ids, tf.int64))


def slices_as_dict(slices, key_type="int64"):
    """A table's gradient as a dict; its keys must all be different."""
    ids = sok.variables.from_keys(slices.indices.numpy(), key_type).tolist()
    assert len(set(ids)) == len(ids)
    return dict(zip(ids, slices.values.numpy(), strict=True))


def export_as_dict(table):
    ids, values = sok.export(table)
    ids = ids.numpy().tolist()
    assert len(set(ids)) == len(ids)
    return dict(zip(ids, tf.cast(values, tf.float64).numpy(), strict=True))


def assert_rows(actual, expected, **tolerance):
    """Two dicts of rows are equal."""
    assert set(actual) == set(expected)
    for id_ in expected:
        np.testing.assert_allclose(actual[id_], expected[id_], err_msg=f"id {id_}", **tolerance)


def _floats(weights):
    """The float tensor inside weights of any kind."""
    parts = tf.nest.flatten(weights, expand_composites=True)
    return [part for part in parts if part.dtype.is_floating]


def lookup_with_gradients(tables, inputs, weights, combiners, gradients, **kwargs):
    """One pass over all features: outputs; the gradient of each different table; of all weights.

    `gradients` are those of the outputs, [batch, dimension] each.
    """
    different = list({id(table): table for table in tables}.values())
    flat_weights = _floats([w for w in weights if w is not None])
    with tf.GradientTape() as tape:
        tape.watch(flat_weights)
        outputs = sok.lookup_sparse(tables, inputs, weights, combiners, **kwargs)
        loss = tf.add_n(
            [
                tf.reduce_sum(tf.cast(output, tf.float32) * tf.cast(gradient, tf.float32))
                for output, gradient in zip(outputs, gradients, strict=True)
            ]
        )
    found = tape.gradient(loss, [*different, *flat_weights])
    return outputs, found[: len(different)], found[len(different) :]


def rounded(values, dtype):
    """Values as a row type holds them, in float32."""
    return tf.cast(tf.cast(np.asarray(values, np.float32), dtype), tf.float32).numpy()
