# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""The op that reads what ranks tell each other, with messages that no rank sends."""

import numpy as np
import pytest
import tensorflow as tf

from sok import _native

FINE = [-1, -1, -1, -1, 7]


def receive(message, sizes, columns=2, tables=("t",), rows=(9,)):
    with tf.device("CPU:0"):
        return _native.ops.sok_receive_counts(
            message=tf.constant(message, tf.int64),
            sizes=tf.constant(sizes, tf.int64),
            columns=columns,
            tables=list(tables),
            rows=list(rows),
            here=0,
            lookup="some tables",
        )


def test_messages_of_counts():
    counts = receive([*FINE, 1, 2, *FINE, 3, 4], [7, 7])
    np.testing.assert_array_equal(counts, [[1, 2], [3, 4]])
    assert receive(FINE, [5], columns=0).shape == [1, 0]
    assert receive([], []).shape == [0, 2]


@pytest.mark.parametrize(
    ("message", "sizes", "match"),
    [
        ([*FINE, 1, 2], [8], "8 numbers of rank 0, but 7 are left"),
        ([*FINE, 1, 2], [4, 3], "4 numbers of rank 0"),
        ([*FINE, 1, 2], [-1], "-1 numbers of rank 0"),
        ([*FINE, 1, 2], [2**62, 2**62], "numbers of rank 0"),
        ([*FINE, 1, 2, 3], [7], "1 numbers are of no rank"),
        ([], [7], "7 numbers of rank 0, but 0 are left"),
        ([*FINE, 1], [6], "1 counts, not 2"),
        ([*FINE, 1, 2, *FINE, 3], [7, 6], "rank 1 does not make the same lookup as rank 0. On rank 0 it is: some"),
        ([*FINE, 1, 2, *FINE[:4], 8, 3, 4], [7, 7], "rank 1 does not make the same lookup as rank 0"),
        ([*FINE, 1, 2, 0, 0, 5, 11, 7, 3, 4], [7, 7], "table 't': id 11 at position 5 of rank 1 is out of range"),
    ],
    ids=["long", "short", "negative", "huge", "rest", "empty", "columns", "tables", "lookup", "id"],
)
def test_messages_that_are_refused(message, sizes, match):
    with pytest.raises(tf.errors.InvalidArgumentError, match=match):
        receive(message, sizes)


@pytest.mark.parametrize("table", [-2, 1, 2**62])
def test_messages_of_a_table_that_is_not_there(table):
    np.testing.assert_array_equal(receive([table, 0, 0, 0, 7, 1, 2], [7]), [[1, 2]])


def test_messages_of_another_shape():
    for message, sizes in (([[*FINE, 1, 2]], [7]), ([*FINE, 1, 2], 7), (7, [7])):
        with pytest.raises(ValueError, match="must be rank 1"):
            tf.function(receive)(message, sizes)
    with pytest.raises(tf.errors.InvalidArgumentError, match="rows needs one entry a table"):
        receive([*FINE, 1, 2], [7], rows=(1, 2))
