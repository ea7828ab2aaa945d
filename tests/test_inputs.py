# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Ids of any kind and dtype become one record; what cannot is refused by name."""

import kinds
import numpy as np
import pytest
import reference
import tensorflow as tf
from world import ON_GPU

import sok
from sok import inputs
from sok._native import KEY_DTYPES

ID_DTYPES = ("int8", "int16", "uint8", "uint16", *KEY_DTYPES)
BAGS = [[], [3, 1], [3], [], [7, 7, 7], []]


@pytest.mark.parametrize("key_type", reference.KEY_DTYPES)
def test_every_key_is_legal(run, key_type):
    """Distinct rows that survive growth, erasure and export, under their own ids."""
    ids = reference.SENTINELS[key_type]
    table = sok.DynamicVariable(4, initializer="normal", key_type=key_type)
    lookup = lambda ids: sok.lookup_sparse(table, ids)  # noqa: E731
    first = run(lookup, tf.constant(ids, key_type)).numpy()
    assert len({row.tobytes() for row in first}) == len(ids)
    run(lookup, tf.range(5000, 9000, dtype=tf.int64) if key_type != "uint64" else
        tf.cast(tf.range(5000, 9000), tf.uint64))  # fmt: skip
    assert table.size == [len(ids) + 4000, 4]
    erased = ids[::2]
    assert sok.erase(table, tf.constant(erased, key_type)) == len(erased)
    assert set(kinds.export_as_dict(table)) >= set(ids[1::2])
    assert not set(kinds.export_as_dict(table)) & set(erased)
    # Initial values depend on the id alone, so an erased id comes back as it was.
    np.testing.assert_array_equal(run(lookup, tf.constant(ids, key_type)), first)


@pytest.mark.parametrize("ids_dtype", ID_DTYPES)
@pytest.mark.parametrize("key_type", KEY_DTYPES)
def test_ids_of_other_dtypes_where_they_fit(key_type, ids_dtype):
    table = sok.DynamicVariable(2, initializer="normal", key_type=key_type)
    small = [0, 1, 2, 100]
    expected = sok.lookup_sparse(table, tf.constant(small, key_type)).numpy()
    np.testing.assert_array_equal(sok.lookup_sparse(table, tf.constant(small, ids_dtype)), expected)


@pytest.mark.parametrize(
    ("key_type", "ids", "words"),
    [
        ("int32", tf.constant([2**31], tf.int64), "at most 2147483647"),
        ("int32", tf.constant([-(2**31) - 1], tf.int64), "at least -2147483648"),
        ("int32", tf.constant([2**31], tf.uint32), "at most 2147483647"),
        ("int32", tf.constant([2**63], tf.uint64), "at least -2147483648"),
        ("int64", tf.constant([2**63], tf.uint64), "at most 9223372036854775807"),
        ("uint32", tf.constant([-1]), "at least 0"),
        ("uint32", tf.constant([2**32], tf.int64), "at most 4294967295"),
        ("uint64", tf.constant([-1], tf.int64), "at least 0"),
    ],
)
def test_ids_that_do_not_fit(run, key_type, ids, words):
    table = sok.DynamicVariable(2, key_type=key_type)
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"key_type is {key_type}.*{words}"):
        run(lambda ids: sok.lookup_sparse(table, ids), ids)
    assert table.size == [0, 2]


@pytest.mark.parametrize("kind", ["masked", "ragged32", "ragged64", "nested", "sparse"])
def test_records(kind):
    mask = kinds.PADDING if kind == "masked" else None
    ids = kinds.make(kind, BAGS, "int32")
    weights = kinds.make(kind, [[float(i) for i in bag] for bag in BAGS], "float16", padding=0)
    record = sok.check_out(inputs.to_record(ids, weights, mask_value=mask))
    assert record["ids"].dtype == np.int64
    assert record["ids"].tolist() == [3, 1, 3, 7, 7, 7]
    assert record["row_splits"].tolist() == [0, 0, 2, 3, 3, 6, 6]
    assert record["weights"].dtype == np.float32
    assert record["weights"].tolist() == record["ids"].tolist()


def test_dense_records():
    record = inputs.to_record([3, 1], [0.5, 2.0])
    assert record.ids.numpy().tolist() == [[3], [1]]
    assert record.row_splits is None
    assert record.weights.numpy().tolist() == [[0.5], [2.0]]
    assert inputs.to_record(np.asarray([[3, 1]])).ids.shape == [1, 2]


@pytest.mark.parametrize("mask", [-1, 0, 99])
@pytest.mark.parametrize("key_type", ["int64", "uint32"])
def test_only_a_declared_value_is_padding(run, key_type, mask):
    """0 and -1 are ids like any other, unless the call says otherwise."""
    ids = [[0, 1], [99, 0]] if key_type == "uint32" else [[0, -1], [99, 0]]
    if mask == -1 and key_type == "uint32":
        mask = 1
    table = sok.DynamicVariable(1, initializer="ones", key_type=key_type)
    lookup = lambda ids, **kw: sok.lookup_sparse(table, ids, combiners="sum", **kw)  # noqa: E731
    np.testing.assert_array_equal(run(lookup, tf.constant(ids, key_type)), [[2.0], [2.0]])
    output = run(lambda ids: lookup(ids, mask_value=mask), tf.constant(ids, key_type))
    kept = [[sum(id_ != mask for id_ in bag)] for bag in ids]
    np.testing.assert_array_equal(output, kept)


@pytest.mark.parametrize(("dtype", "mask"), [("int32", 2**40), ("uint32", -1), ("int64", 2**64)])
def test_mask_value_that_no_id_can_equal(dtype, mask):
    """Not cast to the ids' dtype, where it would be another id."""
    table = sok.DynamicVariable(1, initializer="ones", key_type=dtype)
    ids = tf.constant([[0, 2**31 - 1]], dtype)
    np.testing.assert_array_equal(sok.lookup_sparse(table, ids, combiners="sum", mask_value=mask), [[2.0]])


def test_python_lists_without_ids():
    """They have no dtype of their own."""
    table = sok.DynamicVariable(3)
    assert sok.lookup_sparse(table, []).shape == [0, 3]
    assert sok.lookup_sparse(table, [[], []]).shape == [2, 3]
    assert sok.erase(table, []) == 0
    sok.assign(table, [], np.zeros((0, 3)))
    assert tf.nn.embedding_lookup(table, []).shape == [0, 3]


def test_mask_value_with_weights():
    table = sok.Variable([[1.0], [10.0]])
    output = sok.lookup_sparse(table, [[0, 1], [1, -1]], [[2.0, 3.0], [0.5, 7.0]], combiners="sum", mask_value=-1)
    np.testing.assert_array_equal(output, [[32.0], [5.0]])


@pytest.mark.parametrize("policy", ["zero", "clip"])
def test_static_table_out_of_range(run, policy):
    table = sok.Variable([[1.0], [2.0], [3.0]], out_of_range=policy)
    ids = [[0, 3], [-1, 2], [2**40, -(2**63)]]
    (output,), (slices,), _ = run(
        lambda ids: kinds.lookup_with_gradients([table], [ids], [None], ["sum"], [np.ones((3, 1))]),
        tf.constant(ids, tf.int64),
    )
    if policy == "zero":
        np.testing.assert_array_equal(output, [[1], [3], [0]])
        kinds.assert_rows(kinds.slices_as_dict(slices), {0: [1.0], 2: [1.0]})
    else:
        np.testing.assert_array_equal(output, [[4], [4], [4]])
        kinds.assert_rows(kinds.slices_as_dict(slices), {0: [3.0], 2: [3.0]})


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_static_table_refuses_ids_out_of_range(run, kind):
    table = sok.Variable([[1.0], [2.0], [3.0]], name="items")
    for bad, position in ((3, 2), (-1, 2)):
        bags = [[0, 2], [bad, 1]]
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match=f"'items': id {bad} at position {position} is out of range: the table has 3 rows",
        ):
            run(lambda ids: sok.lookup_sparse(table, ids), kinds.make(kind, bags, "int64"))


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 1000, 1001])
def test_any_row_count(rows):
    table = sok.Variable(shape=(rows, 3), initializer="normal", seed=5)
    ids, values = sok.export(table)
    assert ids.numpy().tolist() == list(range(rows))
    np.testing.assert_array_equal(sok.lookup_sparse(table, ids), values)
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"id {rows} at position 0"):
        sok.lookup_sparse(table, [rows])


def test_unordered_sparse_ids():
    table = sok.DynamicVariable(2)
    ids = tf.SparseTensor([[1, 0], [0, 0]], tf.constant([1, 2]), [2, 3])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"call tf\.sparse\.reorder"):
        sok.lookup_sparse(table, ids)
    sok.lookup_sparse(table, tf.sparse.reorder(ids))


@pytest.mark.parametrize("rows", [[0, 5], [-1, 0]])
def test_sparse_rows_outside_of_the_batch(run, rows):
    table = sok.DynamicVariable(2)

    def lookup(indices):
        return sok.lookup_sparse(table, tf.SparseTensor(indices, [1, 2], [2, 3]))

    with pytest.raises(tf.errors.InvalidArgumentError, match="row"):
        run(lookup, tf.constant([[row, 0] for row in rows], tf.int64))
    # A GPU has inserted the ids by the time that it sees the splits.
    assert ON_GPU or table.size == [0, 2]


@pytest.mark.parametrize(
    ("splits", "words"),
    [
        ([0, 1, 2], "ends at 2, but there are 3 ids"),
        ([0, 5, 3], "must not decrease"),
        ([1, 2, 3], "must start at 0"),
    ],
)
def test_row_splits_that_lie(splits, words):
    table = sok.DynamicVariable(2)
    ids = tf.RaggedTensor.from_row_splits(tf.constant([1, 2, 3]), splits, validate=False)
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        sok.lookup_sparse(table, ids)
    # A GPU has inserted the ids by the time that it sees the splits.
    assert ON_GPU or table.size == [0, 2]
