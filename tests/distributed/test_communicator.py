# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""The contract of `sok.comm.base.Communicator`: one suite that every communicator runs.

Each check is a function of a communicator, made concrete by those that exist. A new one needs a line in
COMMUNICATORS.
"""

import sys

import numpy as np
import pytest
import tensorflow as tf

import sok
from sok.comm import base

COMMUNICATORS = {"local": 1, "horovod-2": 2, "horovod-3": 3}


def values(rank, shape, dtype, salt=0):
    """Numbers that differ between ranks, and use the high bits of integers."""
    rng = np.random.default_rng([rank, salt])
    if tf.as_dtype(dtype).is_floating:
        return rng.integers(-8, 8, shape).astype(tf.as_dtype(dtype).as_numpy_dtype)
    info = np.iinfo(tf.as_dtype(dtype).as_numpy_dtype)
    return rng.integers(info.min, info.max, shape, info.dtype, endpoint=True)


def both(function, *args):
    """The results of a function called eagerly and compiled; they must be equal."""
    eager = [x.numpy() for x in tf.nest.flatten(function(*args))]
    compiled = [x.numpy() for x in tf.nest.flatten(tf.function(function)(*args))]
    for a, b in zip(eager, compiled):
        np.testing.assert_array_equal(a, b)
    return eager


def all_to_all(dtype, counts):
    """counts[sender][receiver] slices travel."""
    c = sok.init()
    counts = np.asarray(counts)[: c.size, : c.size]
    sent = [values(r, (counts[r].sum(), 3), dtype) for r in range(c.size)]
    out, received = both(
        lambda x, s: c.all_to_all(x, s, "test"), tf.constant(sent[c.rank]), tf.constant(counts[c.rank])
    )
    begin = np.cumsum(counts, 1) - counts
    expected = [x[b[c.rank] :][: n[c.rank]] for x, b, n in zip(sent, begin, counts)]
    np.testing.assert_array_equal(out, np.concatenate(expected))
    np.testing.assert_array_equal(received, counts[:, c.rank])
    assert received.dtype == np.int64


def all_gather(dtype, lengths):
    c = sok.init()
    parts = [values(r, (lengths[r], 2), dtype) for r in range(c.size)]
    (out,) = both(lambda x: c.all_gather(x, "test"), tf.constant(parts[c.rank]))
    np.testing.assert_array_equal(out, np.concatenate(parts))


def all_reduce(dtype, shape):
    c = sok.init()
    parts = [values(r, shape, dtype) for r in range(c.size)]
    for op, function in (("sum", np.sum), ("mean", np.mean), ("min", np.min), ("max", np.max)):
        if op == "mean" and not tf.as_dtype(dtype).is_floating:
            continue
        (out,) = both(lambda x, op=op: c.all_reduce(x, "test", op), tf.constant(parts[c.rank]))
        assert out.dtype == parts[0].dtype
        if op == "mean":
            want = np.mean([x.astype(np.float64) for x in parts], axis=0)
            np.testing.assert_allclose(out.astype(np.float64), want, rtol=1e-2)
        else:
            np.testing.assert_array_equal(out, function(parts, axis=0).astype(out.dtype))


def reduce_scatter(dtype, rows):
    c = sok.init()
    parts = [values(r, (rows, 2), dtype) for r in range(c.size)]
    (out,) = both(lambda x: c.reduce_scatter(x, "test"), tf.constant(parts[c.rank]))
    sizes = [rows // c.size + (r < rows % c.size) for r in range(c.size)]
    first = sum(sizes[: c.rank])
    want = np.sum(parts, axis=0)[first : first + sizes[c.rank]]
    np.testing.assert_array_equal(out, want.astype(out.dtype))


def broadcast(dtype, shape):
    c = sok.init()
    for root in range(c.size):
        (out,) = both(
            lambda x, root=root: c.broadcast(x, root, "test"), tf.constant(values(c.rank, shape, dtype))
        )
        np.testing.assert_array_equal(out, values(root, shape, dtype))


def order_in_a_function(steps):
    """Collectives without data dependencies between them, of several functions, forward and backward."""
    c = sok.init()

    @tf.custom_gradient
    def exchange(x):
        def gradient(g):
            return c.all_reduce(g, "backward")

        return c.all_reduce(x, "forward"), gradient

    inner = tf.function(lambda x: exchange(x) + exchange(2 * x))

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.add_n([exchange(x), inner(x), exchange(3 * x), inner(5 * x)])
        return tape.gradient(y, x)

    for _ in range(steps):
        # 1 + (1 + 2) + 3 + 5 (1 + 2), and the sum over ranks of the incoming gradients.
        np.testing.assert_array_equal(step(tf.ones([4])), np.full(4, 22.0 * c.size))
    c.barrier()


def big_buffer():
    """A buffer of megabytes, and the counts of what travelled."""
    c = sok.init()
    before = sok.stats().get("big", {"calls": 0, "sent_bytes": 0, "sent_rows": 0})
    rows = 1 << 16
    sent = tf.cast(tf.reshape(tf.range(rows * 8), [rows, 8]), tf.float32) + c.rank
    splits = [rows // c.size] * (c.size - 1) + [rows - rows // c.size * (c.size - 1)]
    out, _ = c.all_to_all(sent, splits, "big")
    first = sum(splits[: c.rank])
    for r, part in enumerate(tf.split(out, [splits[c.rank]] * c.size)):
        np.testing.assert_array_equal(part, (sent - c.rank)[first : first + splits[c.rank]] + r)
    if c.size > 1:
        after = sok.stats()["big"]
        assert after["calls"] - before["calls"] == 1
        assert after["sent_rows"] - before["sent_rows"] == rows - splits[c.rank]
        assert after["sent_bytes"] - before["sent_bytes"] == (rows - splits[c.rank]) * 32


def scripts():
    """(name, function, arguments) of every check."""
    some = [[2, 0, 3], [1, 4, 0], [0, 2, 1]]
    for dtype in base.DTYPES:
        yield f"all_to_all-{dtype}", all_to_all, (dtype, some)
        yield f"all_gather-{dtype}", all_gather, (dtype, [2, 3, 1])
        yield f"broadcast-{dtype}", broadcast, (dtype, (2, 3))
    for dtype in base.REDUCED_DTYPES:
        yield f"all_reduce-{dtype}", all_reduce, (dtype, (3, 2))
        yield f"reduce_scatter-{dtype}", reduce_scatter, (dtype, 7)
    one_sender = [[0, 0, 0], [3, 2, 1], [0, 0, 0]]
    yield "all_to_all-one_sender", all_to_all, ("float32", one_sender)
    yield "all_to_all-empty", all_to_all, ("int64", np.zeros((3, 3), int))
    yield "all_gather-one_empty", all_gather, ("float32", [0, 2, 0])
    yield "all_gather-empty", all_gather, ("int64", [0, 0, 0])
    yield "all_reduce-scalar", all_reduce, ("float32", ())
    yield "all_reduce-empty", all_reduce, ("float32", (0, 2))
    yield "broadcast-scalar", broadcast, ("int64", ())
    yield "broadcast-empty", broadcast, ("float32", (0,))
    yield "reduce_scatter-fewer_rows_than_ranks", reduce_scatter, ("float32", 1)
    yield "reduce_scatter-empty", reduce_scatter, ("float32", 0)
    yield "order", order_in_a_function, (20,)
    yield "big_buffer", big_buffer, ()


SCRIPTS = {name: (function, arguments) for name, function, arguments in scripts()}


@pytest.mark.parametrize("check", SCRIPTS)
@pytest.mark.parametrize("communicator", COMMUNICATORS)
def test_contract(communicator, check, ranks_of):
    function, arguments = SCRIPTS[check]
    if COMMUNICATORS[communicator] == 1:
        function(*arguments)
    else:
        ranks_of(COMMUNICATORS[communicator]).run(function, *arguments)


def test_time_limit_must_be_a_number(monkeypatch):
    for text in ("soon", "0", "-1", "inf"):
        monkeypatch.setenv("SOK_COMM_TIMEOUT", text)
        with pytest.raises(ValueError, match=f"positive number of seconds, got '{text}'"):
            base.timeout_seconds()


def test_init_lists_the_tools():
    with pytest.raises(ValueError, match="comm_tool must be one of horovod or None, got 'mpi'"):
        sok.init("mpi")
    with pytest.warns(UserWarning, match="use_legacy_optimizer is ignored"):
        sok.init(use_legacy_optimizer=True)


def test_init_says_how_to_install_horovod(monkeypatch):
    monkeypatch.setitem(sys.modules, "horovod.tensorflow", None)
    with pytest.raises(ImportError, match=r"python -m sok\.comm\.build_horovod --install"):
        sok.init("horovod")
