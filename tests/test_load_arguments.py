# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Arguments of the ways to load and export that are not of dumps: errors name the value, and nothing changes."""

import keras
import numpy as np
import pytest

import sok

PATHS = [(None, TypeError, "None"), (5, TypeError, "5"), ("", ValueError, "''"), ("a\0b", ValueError, "'a")]


@pytest.mark.parametrize(("path", "error", "text"), PATHS, ids=["none", "number", "empty", "null"])
def test_paths(path, error, text):
    table = sok.DynamicVariable(2, name="items")
    model = keras.Sequential([keras.Input((2,), dtype="int64"), sok.layers.DistributedEmbedding(2, default="zeros")])
    for call in (
        lambda: sok.checkpoint.load_sok2(path, table),
        lambda: sok.checkpoint.load_parquet(table, path),
        lambda: sok.export_static(model, path),
    ):
        with pytest.raises(error, match=f"path must be .*got {text}"):
            call()
    assert table.size == [0, 2]


def test_things_that_are_no_model_and_no_table(tmp_path):
    with pytest.raises(TypeError, match="model must be a Keras model, got 'x'"):
        sok.export_static("x", tmp_path)
    for load, arguments in ((sok.checkpoint.load_rows, ([1], [[1.0]])), (sok.checkpoint.load_parquet, (tmp_path,))):
        with pytest.raises(TypeError, match=r"expected a sok\.Variable or sok\.DynamicVariable, got int: 3"):
            load(3, *arguments)


@pytest.mark.parametrize(
    ("ids", "values", "text"),
    [
        ([1, 2], [[1.0, 2.0], [3.0]], r"'items' takes ids \[n\] and values \[n, 2\]: "),
        ([[1], [1, 2]], np.ones((2, 2)), r"'items' takes ids \[n\] and values \[n, 2\]: "),
        ([2**70, 1], np.ones((2, 2)), f"ids have at most 64 bits, got {2**70}"),
    ],
    ids=["values", "ids", "bits"],
)
def test_arrays(ids, values, text):
    table = sok.DynamicVariable(2, name="items")
    with pytest.raises(ValueError, match=text):
        sok.checkpoint.load_rows(table, ids, values)
    assert table.size == [0, 2]
