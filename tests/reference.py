# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""The oracle: what every call must return, in float64 numpy, one bag and one id at a time.

A table is a dict from id to row; bags are lists of ids, one list an example; weights are lists of the
same lengths. Nothing here is fast, and nothing here is shared with the library.
"""

import numpy as np

# How far results in a row type may be from float64: relative and absolute.
TOLERANCE = {
    "float32": {"rtol": 2e-5, "atol": 1e-5},
    "float16": {"rtol": 2e-3, "atol": 2e-3},
    "bfloat16": {"rtol": 1.6e-2, "atol": 1.6e-2},
}

KEY_DTYPES = ("int32", "int64", "uint32", "uint64")
ROW_DTYPES = tuple(TOLERANCE)
COMBINERS = ("sum", "mean", "sqrtn")

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
# Ids that other libraries reserve, or that lose bits on the way.
SENTINELS = {
    "int32": [-1, 0, 1, -2, -3, -4, -(2**31), -(2**31) + 1, 2**31 - 1, 2**24 + 1],
    "int64": [
        *(-1, 0, 1, -2, -3, -4, INT64_MIN, INT64_MIN + 1, INT64_MAX - 1, INT64_MAX),
        *(-(2**31), 2**31 - 1, 2**32 - 1, 2**24 + 1, 2**40 + 1, 2**53 + 1),
    ],
    "uint32": [0, 1, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1, 2**24 + 1],
    "uint64": [0, 1, 2**31, 2**32 - 1, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1],
}


def clip_row(row, max_norm):
    """The row, scaled down to the length max_norm if it is longer."""
    row = np.asarray(row, np.float64)
    norm = np.sqrt(np.sum(row**2))
    return row * (max_norm / norm) if max_norm and norm > max_norm else row


def divisor(weights, combiner):
    weights = np.asarray(weights, np.float64)
    if combiner == "sum":
        return 1.0
    return np.sum(weights) if combiner == "mean" else np.sqrt(np.sum(weights**2))


def _weights_of(bags, weights):
    return [np.ones(len(bag)) for bag in bags] if weights is None else weights


def lookup(table, bags, dimension, weights=None, combiner="sum", max_norm=None):
    """[bags, dimension]: the combined rows of each bag."""
    out = np.zeros((len(bags), dimension))
    for b, (bag, ws) in enumerate(zip(bags, _weights_of(bags, weights), strict=True)):
        total = np.zeros(dimension)
        for id_, w in zip(bag, ws, strict=True):
            total += np.float64(w) * clip_row(table[id_], max_norm)
        by = divisor(ws, combiner)
        out[b] = total / by if by != 0 else 0.0
    return out


def row_gradients(table, bags, gradient, weights=None, combiner="sum", max_norm=None):
    """The gradient of each id that occurs, summed over its occurrences, as a dict."""
    result = {}
    for b, (bag, ws) in enumerate(zip(bags, _weights_of(bags, weights), strict=True)):
        by = divisor(ws, combiner)
        for id_, w in zip(bag, ws, strict=True):
            g = np.float64(w) / by * np.asarray(gradient[b], np.float64) if by != 0 else 0.0
            result[id_] = result.get(id_, 0.0) + g + np.zeros(len(gradient[b]))
    if max_norm:
        for id_, g in result.items():
            row = np.asarray(table[id_], np.float64)
            square = np.sum(row**2)
            if square > max_norm**2:
                result[id_] = (g - row * np.dot(row, g) / square) * max_norm / np.sqrt(square)
    return result


def weight_gradients(table, bags, gradient, weights, combiner="sum", max_norm=None):
    """One list a bag: the gradient of each id's weight."""
    result = []
    for b, (bag, ws) in enumerate(zip(bags, weights, strict=True)):
        g = np.asarray(gradient[b], np.float64)
        by = divisor(ws, combiner)
        rows = [clip_row(table[id_], max_norm) for id_ in bag]
        total = sum((w * row for w, row in zip(ws, rows, strict=True)), np.zeros(len(g)))
        grads = []
        for w, row in zip(ws, rows, strict=True):
            if combiner == "sum":
                grads.append(np.dot(g, row))
            elif by == 0:
                grads.append(0.0)
            elif combiner == "mean":
                grads.append(np.dot(g, row / by - total / by**2))
            else:
                grads.append(np.dot(g, row / by - total * w / by**3))
        result.append(grads)
    return result


def merge(ids, gradients):
    """The summed gradient of each different id, as a dict."""
    result = {}
    for id_, g in zip(ids, gradients, strict=True):
        result[id_] = result.get(id_, 0.0) + np.asarray(g, np.float64)
    return result
