# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Stage 1, inputs: dense, sparse and ragged ids become one CSR record."""

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from sok import checks


@dataclasses.dataclass
class Record:
    """The ids of one feature, in bags.

    ids: int64, [batch, hotness] if dense, else flat [n]. Unsigned ids are bit-cast.
    row_splits: int64 [batch + 1], or None if dense.
    weights: float32 with as many elements as ids, or None.
    outer: what an uncombined result is shaped like: called with the rows of all ids, [n, dim].
    """

    ids: tf.Tensor
    row_splits: tf.Tensor | None = None
    weights: tf.Tensor | None = None
    outer: Any = None

    @property
    def is_ragged(self) -> bool:
        return self.row_splits is not None

    def static_batch_size(self) -> int | None:
        """The number of bags, if it is known now."""
        if self.row_splits is None:
            return self.ids.shape[0]
        return None if self.row_splits.shape[0] is None else self.row_splits.shape[0] - 1

    def batch_size(self) -> tf.Tensor:
        """The number of bags, a scalar that TensorFlow keeps in host memory."""
        if self.row_splits is None:
            return tf.shape(self.ids, out_type=tf.int64)[0]
        return tf.shape(self.row_splits, out_type=tf.int64)[0] - 1

    def flat(self) -> "Record":
        """Every id in a bag of its own."""
        count = tf.size(self.ids, out_type=tf.int64)
        weights = None if self.weights is None else tf.reshape(self.weights, [-1, 1])
        with tf.control_dependencies(self._check_splits()):
            return Record(tf.reshape(self.ids, tf.stack([count, 1])), None, weights)

    def _check_splits(self) -> list[tf.Operation]:
        """What the lookup checks where it reads the splits."""
        if self.row_splits is None:
            return []
        splits, count = self.row_splits, tf.size(self.ids, out_type=tf.int64)
        starts, ends = tf.equal(splits[:1], 0), tf.equal(splits[-1:], count)
        return checks.require(
            tf.reduce_all(starts) & tf.reduce_all(ends) & tf.reduce_all(splits[1:] >= splits[:-1]),
            "row_splits must start at 0, not decrease, and end at the number of ids,",
            count,
            ", but are",
            splits,
        )


_FIX = (
    'ids must be whole numbers: pass dtype="int64" (keras.Input((1,), dtype="int64"); its default, '
    "float32, changes ids above 16777216)"
)


_SMALL = ("int8", "int16", "uint8", "uint16")
# For each key_type, the dtypes of ids of which every value fits.
_FITTING = {
    "int32": (*_SMALL, "int32"),
    "int64": (*_SMALL, "int32", "uint32", "int64"),
    "uint32": ("uint8", "uint16", "uint32"),
    "uint64": ("uint8", "uint16", "uint32", "uint64"),
}
_LIMITS = {name: (tf.as_dtype(name).min, tf.as_dtype(name).max) for name in _FITTING}


def check_integers(dtype: tf.DType, name: str) -> None:
    """Refuses ids of any other dtype with a TypeError that says what to do."""
    if dtype == tf.string:
        raise TypeError(
            f"{name}: ids are strings; hash them to numbers first: tf.strings.to_hash_bucket_fast "
            "or keras.layers.Hashing"
        )
    if not dtype.is_integer:
        raise TypeError(f"{name}: ids have dtype {dtype.name}; {_FIX}")


def to_keys(ids: Any, key_dtype: str, name: str) -> tf.Tensor:
    """Ids as the table's 64-bit keys.

    Raises:
        TypeError: ids are not integers.
        InvalidArgumentError: an id does not fit the table's key_type.
    """
    dtype = ids.dtype
    check_integers(dtype, name)
    if dtype == tf.uint64:
        # The same 64 bits; only a table of unsigned keys has ids above INT64_MAX.
        keys = tf.bitcast(ids, tf.int64)
    else:
        keys = tf.cast(ids, tf.int64)
    if dtype.name in _FITTING[key_dtype]:
        return keys
    low, high = _LIMITS[key_dtype]
    # Compared as int64: a uint64 id above INT64_MAX has become negative.
    least = max(low, 0) if dtype == tf.uint64 else low
    fits = (keys >= least) & (keys <= min(high, tf.int64.max))
    flat, wrong = tf.reshape(ids, [-1]), tf.logical_not(tf.reshape(fits, [-1]))
    with tf.control_dependencies(
        checks.require(
            tf.reduce_all(fits),
            f"{name}: the table's key_type is {key_dtype}; ids must be at least {low} and at most {high}, got",
            tf.boolean_mask(flat, wrong)[:1],
        )
    ):
        return tf.identity(keys)


def as_tensor(ids: Any, name: str) -> tf.Tensor:
    """Dense ids as a tensor.

    A Python list without a number in it has no dtype: it holds no ids. One with a number above INT64_MAX
    is uint64.

    Raises:
        TypeError: these are no ids.
        ValueError: bags of different lengths, or a number of more than 64 bits.
    """
    try:
        tensor = tf.convert_to_tensor(ids)
    except (TypeError, ValueError) as error:
        if not isinstance(ids, (list, tuple, int)):
            raise TypeError(f"{name}: {ids!r} holds no ids: pass a tensor, array or list of whole numbers") from error
        tensor = _from_numpy(ids, name)
    empty = isinstance(ids, (list, tuple)) and tensor.shape.num_elements() == 0
    return tf.zeros(tensor.shape, tf.int64) if empty else tensor


def _from_numpy(ids: Any, name: str) -> tf.Tensor:
    """Python numbers that TensorFlow does not take."""
    try:
        np.asarray(ids)
    except ValueError as error:
        raise ValueError(
            f"{name}: bags of different lengths are no dense ids: pass tf.ragged.constant(...)"
        ) from error
    # Not left to NumPy, which makes floats of numbers below and above 2**63.
    if not all(isinstance(number, int) and 0 <= number < 2**64 for number in np.asarray(ids, object).flat):
        raise ValueError(f"{name}: {ids!r} cannot be ids, which are whole numbers of at most 64 bits")
    return tf.convert_to_tensor(np.asarray(ids, np.uint64))


def _weights_like(ids: Any, weights: Any, name: str) -> Any:
    """Weights as float32, of the kind of ids."""
    if isinstance(weights, (tf.SparseTensor, tf.RaggedTensor)):
        flat = weights.values if isinstance(weights, tf.SparseTensor) else weights.flat_values
    else:
        weights = flat = tf.convert_to_tensor(weights)
    if not flat.dtype.is_floating:
        raise TypeError(f"{name}: weights must be floats, got {flat.dtype.name}")
    if type_name(ids) != type_name(weights):
        raise ValueError(
            f"{name}: ids are {type_name(ids)} but weights are {type_name(weights)}; both must be "
            "of one kind"
        )
    return weights


def type_name(value: Any) -> str:
    if isinstance(value, tf.SparseTensor):
        return "sparse"
    return "ragged" if isinstance(value, tf.RaggedTensor) else "dense"


def _same(name: str, what: str, a: tf.Tensor, b: tf.Tensor) -> list:
    """Static check where shapes are known, else an assertion with both."""
    message = f"{name}: ids and weights differ in their {what}:"
    if a.shape.is_fully_defined() and b.shape.is_fully_defined() and a.shape != b.shape:
        raise ValueError(f"{message} {a.shape} and {b.shape}")
    same_shape = tf.reduce_all(tf.equal(tf.shape(a), tf.shape(b)))
    return checks.require(same_shape, message, tf.shape(a), "and", tf.shape(b))


def _equal_values(name: str, what: str, a: tf.Tensor, b: tf.Tensor) -> list:
    with tf.control_dependencies(_same(name, f"number of {what}", a, b)):
        message = f"{name}: ids and weights differ in their {what}:"
        return checks.require(tf.reduce_all(tf.equal(a, b)), message, a, "and", b)


def _from_dense(ids: tf.Tensor, weights: tf.Tensor | None, name: str, mask_value: Any) -> Record:
    rank = ids.shape.rank
    if rank not in (1, 2):
        raise ValueError(
            f"{name}: dense ids must have the shape [batch] or [batch, hotness], got {ids.shape}"
        )
    if weights is not None:
        with tf.control_dependencies(_same(name, "shape", ids, weights)):
            weights = tf.identity(weights)
    shape = tf.shape(ids, out_type=tf.int64)
    static = ids.shape

    def outer(rows):
        dim = rows.shape[-1]
        result = tf.reshape(rows, tf.concat([shape, [dim]], 0))
        result.set_shape(static.concatenate(dim))
        return result

    if rank == 1:
        ids = ids[:, tf.newaxis]
        weights = None if weights is None else weights[:, tf.newaxis]
    if mask_value is None or not ids.dtype.min <= mask_value <= ids.dtype.max:
        return Record(ids, None, weights, outer)
    keep = tf.not_equal(ids, tf.cast(mask_value, ids.dtype))
    lengths = tf.reduce_sum(tf.cast(keep, tf.int64), axis=1)
    splits = tf.concat([[tf.constant(0, tf.int64)], tf.cumsum(lengths)], 0)
    kept = None if weights is None else tf.boolean_mask(weights, keep)

    def outer_masked(rows):
        # Positions of masked ids stay, as zero vectors.
        places = tf.where(tf.reshape(keep, [-1]))
        total = tf.reduce_prod(shape)
        full = tf.scatter_nd(places, rows, tf.stack([total, rows.shape[-1]]))
        return outer(full)

    return Record(tf.boolean_mask(ids, keep), splits, kept, outer_masked)


def _from_ragged(ids: tf.RaggedTensor, weights: Any, name: str) -> Record:
    if ids.ragged_rank > 2 or ids.flat_values.shape.rank != 1:
        raise ValueError(
            f"{name}: ragged ids must have one or two ragged dimensions of scalars, got {ids.shape}"
        )
    splits = tf.cast(ids.row_splits, tf.int64)
    inner = [tf.cast(split, tf.int64) for split in ids.nested_row_splits]
    if ids.ragged_rank == 2:
        # [batch, a, b]: the bag of an example holds all of its ids.
        splits = tf.gather(inner[1], inner[0])
    flat_weights = None
    if weights is not None:
        if weights.ragged_rank != ids.ragged_rank:
            raise ValueError(
                f"{name}: ids have {ids.ragged_rank} ragged dimensions, weights "
                f"{weights.ragged_rank}"
            )
        equal = []
        for mine, other in zip(inner, weights.nested_row_splits):
            equal += _equal_values(name, "row_splits", mine, tf.cast(other, tf.int64))
        with tf.control_dependencies(equal):
            flat_weights = tf.identity(weights.flat_values)
    return Record(ids.flat_values, splits, flat_weights, ids.with_flat_values)


def _from_sparse(ids: tf.SparseTensor, weights: Any, name: str) -> Record:
    if ids.shape.rank not in (None, 2):
        raise ValueError(
            f"{name}: sparse ids must have the shape [batch, any], got {ids.dense_shape}"
        )
    rows, batch = ids.indices[:, 0], ids.dense_shape[0]
    fits = checks.require(
        tf.reduce_all(rows[1:] >= rows[:-1]),
        f"{name}: sparse ids are not in the order of their rows: call tf.sparse.reorder",
    ) + checks.require(
        # In order, so that the first and the last say it.
        tf.reduce_all((rows[:1] >= 0) & (rows[-1:] < batch)),
        f"{name}: sparse ids are outside of their dense_shape",
        ids.dense_shape,
        "in the rows",
        tf.concat([rows[:1], rows[-1:]], 0),
    )
    flat_weights = None
    if weights is not None:
        fits += _equal_values(name, "indices", ids.indices, weights.indices)
        fits += _equal_values(name, "dense_shape", ids.dense_shape, weights.dense_shape)
        flat_weights = weights.values
    with tf.control_dependencies(fits):
        batch, values = tf.identity(batch), tf.identity(ids.values)
    # The number of ids before each row.
    splits = tf.searchsorted(rows, tf.range(batch + 1, dtype=tf.int64), out_type=tf.int64)

    def outer(embedded):
        return tf.RaggedTensor.from_row_splits(embedded, splits, validate=False)

    return Record(values, splits, flat_weights, outer)


def to_record(
    ids: Any, weights: Any = None, *, key_dtype: str = "int64", name: str = "ids", mask_value=None
) -> Record:
    """One feature's ids, of any kind, as a record.

    Args:
        ids: integers: dense [batch] or [batch, hotness], a RaggedTensor with one or two ragged
            dimensions, or a SparseTensor [batch, any] in row order (gaps in columns are allowed).
        weights: floats of the same kind and shape, or None.
        key_dtype: of the table.
        name: in messages.
        mask_value: dense ids equal to it are left out.
    """
    if not isinstance(ids, (tf.SparseTensor, tf.RaggedTensor)):
        ids = as_tensor(ids, name)
    check_integers(ids.dtype, name)
    if weights is not None:
        weights = _weights_like(ids, weights, name)
    checks.mask_value(mask_value)
    if mask_value is not None and type_name(ids) != "dense":
        raise ValueError(f"{name}: mask_value is for dense ids; these are {type_name(ids)}")
    if isinstance(ids, tf.RaggedTensor):
        record = _from_ragged(ids, weights, name)
    elif isinstance(ids, tf.SparseTensor):
        record = _from_sparse(ids, weights, name)
    else:
        record = _from_dense(ids, weights, name, mask_value)
    record.ids = to_keys(record.ids, key_dtype, name)
    if record.weights is not None:
        record.weights = tf.cast(record.weights, tf.float32)
    return record
