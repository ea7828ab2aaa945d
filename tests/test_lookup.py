# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lookups and their gradients against the oracle: every type, input kind, combiner and width."""

import itertools

import keras
import kinds
import numpy as np
import pytest
import reference
import tensorflow as tf

import sok

WIDTHS = (*range(1, 18), 31, 32, 33, 127, 128, 129, 1023, 1024, 1025, 4096)


def _bags(rng, ids, kind):
    """Bags with repeated ids: of one length if dense, else also empty ones, at both ends too."""
    lengths = [4] * 9 if kind == "dense" else [0, 1, 3, 0, 7, 2, 5, 1, 0]
    return [[int(ids[i]) for i in rng.integers(0, len(ids), n)] for n in lengths]


def _total(parts):
    """The sum of dicts of row gradients."""
    result = {}
    for id_, row in itertools.chain(*(part.items() for part in parts)):
        result[id_] = result.get(id_, 0.0) + row
    return result


@pytest.mark.parametrize("dtype", reference.ROW_DTYPES)
@pytest.mark.parametrize("key_type", reference.KEY_DTYPES)
def test_forward_and_gradients(run, rng, key_type, dtype):
    """All kinds x combiners x weights of one table, in one pass."""
    ids = reference.SENTINELS[key_type]
    table, rows = kinds.table_of(kinds.random_rows(rng, ids, 5), key_type, dtype)
    cases = []
    for kind, combiner, weighted in itertools.product(
        ("dense", "ragged32", "ragged64", "nested", "sparse"), reference.COMBINERS, (False, True)
    ):
        bags = _bags(rng, ids, kind)
        # Away from divisors near 0, where a 16-bit output says little.
        ws = [rng.uniform(0.2, 2.0, len(bag)) for bag in bags] if weighted else None
        cases.append((kind, combiner, bags, ws, kinds.rounded(rng.normal(size=(9, 5)), dtype)))
    outputs, (slices,), weight_gradients = run(
        lambda inputs, weights, gradients: kinds.lookup_with_gradients(
            [table] * len(cases), inputs, weights, [case[1] for case in cases], gradients
        ),
        [kinds.make(kind, bags, key_type) for kind, _, bags, _, _ in cases],
        [ws and kinds.make(kind, ws, "float32") for kind, _, _, ws, _ in cases],
        [gradient for *_, gradient in cases],
    )
    tolerance = reference.TOLERANCE[dtype]
    for (kind, combiner, bags, ws, _), output in zip(cases, outputs, strict=True):
        assert output.dtype.name == dtype
        expected = reference.lookup(rows, bags, 5, ws, combiner)
        np.testing.assert_allclose(tf.cast(output, tf.float64), expected, **tolerance, err_msg=f"{kind} {combiner}")
    expected = _total(
        reference.row_gradients(rows, bags, gradient, ws, combiner) for _, combiner, bags, ws, gradient in cases
    )
    kinds.assert_rows(kinds.slices_as_dict(slices, key_type), expected, **tolerance)
    weighted = [case for case in cases if case[3] is not None]
    for (kind, combiner, bags, ws, gradient), found in zip(weighted, weight_gradients, strict=True):
        expected = np.concatenate(reference.weight_gradients(rows, bags, gradient, ws, combiner))
        np.testing.assert_allclose(np.reshape(found, [-1]), expected, **tolerance, err_msg=f"{kind} {combiner}")


@pytest.mark.parametrize("dtype", reference.ROW_DTYPES)
def test_widths(run, rng, dtype):
    """One pass over tables of every width, from 1 to 4096."""
    ids = list(range(20))
    made = [kinds.table_of(kinds.random_rows(rng, ids, width), dtype=dtype) for width in WIDTHS]
    combiners = [reference.COMBINERS[i % 3] for i in range(len(WIDTHS))]
    bags = _bags(rng, ids, "ragged64")
    ws = [rng.uniform(0.2, 2.0, len(bag)) for bag in bags]
    weights = [kinds.make("ragged64", ws, "float32") if i % 2 else None for i in range(len(WIDTHS))]
    gradients = [kinds.rounded(rng.normal(size=(9, width)), dtype) for width in WIDTHS]
    outputs, slices, weight_gradients = run(
        lambda inputs, weights, gradients: kinds.lookup_with_gradients(
            [table for table, _ in made], inputs, weights, combiners, gradients
        ),
        [kinds.make("ragged64", bags, "int64")] * len(WIDTHS),
        weights,
        gradients,
    )
    tolerance = reference.TOLERANCE[dtype]
    # A weight's gradient sums over the width.
    loose = {name: 40 * value for name, value in tolerance.items()}
    for i, width in enumerate(WIDTHS):
        rows = made[i][1]
        used = ws if i % 2 else None
        np.testing.assert_allclose(
            tf.cast(outputs[i], tf.float64),
            reference.lookup(rows, bags, width, used, combiners[i]),
            **tolerance,
            err_msg=f"width {width}",
        )
        kinds.assert_rows(
            kinds.slices_as_dict(slices[i]),
            reference.row_gradients(rows, bags, gradients[i], used, combiners[i]),
            **tolerance,
        )
        if i % 2:
            expected = reference.weight_gradients(rows, bags, gradients[i], ws, combiners[i])
            np.testing.assert_allclose(
                weight_gradients[i // 2], np.concatenate(expected), **loose, err_msg=f"width {width}"
            )


@pytest.mark.parametrize("batch", [0, 1, 31, 32, 33, 2047, 2048, 2049])
def test_batch_sizes(rng, batch):
    """Around the sizes at which loops split their work, with three kinds of id distributions."""
    table, rows = kinds.table_of(kinds.random_rows(rng, range(500), 3))
    features = [
        np.full((batch, 3), 7),
        np.arange(3 * batch).reshape(batch, 3) % 500,
        np.minimum(rng.zipf(1.3, (batch, 3)) - 1, 499),
    ]
    gradient = rng.normal(size=(batch, 3)).astype(np.float32)
    outputs, (slices,), _ = kinds.lookup_with_gradients(
        [table] * 3, [tf.constant(f) for f in features], [None] * 3, ["sum", "mean", "sqrtn"],
        [gradient] * 3,
    )  # fmt: skip
    for feature, combiner, output in zip(features, reference.COMBINERS, outputs, strict=True):
        expected = reference.lookup(rows, feature.tolist(), 3, None, combiner)
        np.testing.assert_allclose(output, expected, rtol=2e-5, atol=2e-5)
    expected = _total(
        reference.row_gradients(rows, feature.tolist(), gradient, None, combiner)
        for feature, combiner in zip(features, reference.COMBINERS, strict=True)
    )
    kinds.assert_rows(kinds.slices_as_dict(slices), expected, rtol=1e-4, atol=1e-3)


def test_long_bag_and_many_threads(rng):
    """A bag longer than any piece of work, beside short ones."""
    table, rows = kinds.table_of(kinds.random_rows(rng, range(3000), 2))
    bags = [rng.integers(0, 3000, n).tolist() for n in (1, 50_000, 0, 3, 20_000)]
    gradient = rng.normal(size=(5, 2)).astype(np.float32)
    (output,), (slices,), _ = kinds.lookup_with_gradients(
        [table], [kinds.make("ragged64", bags, "int64")], [None], ["mean"], [gradient]
    )
    np.testing.assert_allclose(output, reference.lookup(rows, bags, 2, None, "mean"), rtol=1e-4, atol=1e-5)
    kinds.assert_rows(
        kinds.slices_as_dict(slices),
        reference.row_gradients(rows, bags, gradient, None, "mean"),
        rtol=1e-4,
        atol=1e-6,
    )


def test_uncombined(run, rng):
    """One vector an id, in the shape of the ids."""
    table, rows = kinds.table_of(kinds.random_rows(rng, range(9), 3))
    bags = [[1, 2], [], [3, 3, 8]]
    flat = np.stack([rows[id_] for bag in bags for id_ in bag]).astype(np.float32)
    nothing = np.zeros(3, np.float32)

    def lookup(ids, **kwargs):
        return sok.lookup_sparse([table], [ids], combiners=[None], **kwargs)[0]

    for kind in ("ragged32", "ragged64", "sparse", "nested"):
        output = run(lookup, kinds.make(kind, bags, "int64"))
        assert isinstance(output, tf.RaggedTensor)
        np.testing.assert_array_equal(output.flat_values, flat)
        merged = output if kind != "nested" else output.merge_dims(1, 2)
        assert merged.row_lengths().numpy().tolist() == [2, 0, 3]
    output = run(lambda ids: lookup(ids, mask_value=kinds.PADDING), kinds.make("masked", bags, "int64"))
    np.testing.assert_array_equal(
        output,
        [[flat[0], flat[1], nothing], [nothing] * 3, [flat[2], flat[3], flat[4]]],
    )
    output = run(lookup, tf.constant([[1, 2], [3, 3]], tf.int64))
    np.testing.assert_array_equal(output, [[flat[0], flat[1]], [flat[2], flat[3]]])
    output = run(lookup, tf.constant([1, 8], tf.int64))
    np.testing.assert_array_equal(output, [flat[0], flat[4]])
    assert run(lookup, tf.zeros([0, 4], tf.int64)).shape == [0, 4, 3]


def test_uncombined_gradients_and_weights(run, rng):
    table, rows = kinds.table_of(kinds.random_rows(rng, range(4), 2))
    ids = tf.constant([[1, 2], [2, 2]], tf.int64)
    weights = tf.constant([[2.0, 3.0], [-1.0, 0.0]])
    gradient = rng.normal(size=(2, 2, 2)).astype(np.float32)
    (output,), (slices,), (weight_gradient,) = run(
        lambda *args: kinds.lookup_with_gradients([table], [args[0]], [args[1]], [None], [args[2]]),
        ids,
        weights,
        gradient,
    )
    looked_up = np.asarray([[rows[1], rows[2]], [rows[2], rows[2]]])
    np.testing.assert_allclose(output, looked_up * weights.numpy()[..., None], rtol=1e-6)
    expected = reference.merge(ids.numpy().ravel().tolist(), (gradient * weights.numpy()[..., None]).reshape(-1, 2))
    kinds.assert_rows(kinds.slices_as_dict(slices), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(weight_gradient, np.sum(gradient * looked_up, axis=-1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", kinds.KINDS)
@pytest.mark.parametrize("combiner", [*reference.COMBINERS, None])
def test_static_shapes(kind, combiner):
    table = sok.DynamicVariable(7)
    shapes = []

    def lookup(ids):
        mask = kinds.PADDING if kind == "masked" else None
        output = sok.lookup_sparse([table], [ids], combiners=[combiner], mask_value=mask)[0]
        shapes.append(output.shape)

    ids = kinds.make(kind, [[1, 2], [3, 4]], "int64")
    ragged = isinstance(ids, tf.RaggedTensor)
    spec = {
        "dense": tf.TensorSpec([None, 2], tf.int64),
        "masked": tf.TensorSpec([None, 2], tf.int64),
        "sparse": tf.SparseTensorSpec([None, 100], tf.int64),
    }.get(kind)
    if ragged:
        shape = [None] * (3 if kind == "nested" else 2)
        spec = tf.RaggedTensorSpec(shape, tf.int64, row_splits_dtype=ids.row_splits.dtype)
    tf.function(lookup, input_signature=[spec]).get_concrete_function()
    if combiner is not None:
        assert shapes[0].as_list() == [None, 7]
    elif kind in ("dense", "masked"):
        assert shapes[0].as_list() == [None, 2, 7]
    else:
        assert shapes[0].as_list() == [None, *[None] * (2 if kind == "nested" else 1), 7]


def test_no_retrace_for_a_new_batch_size():
    table = sok.DynamicVariable(2)
    traces = []

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.int64)])
    def lookup(ids):
        traces.append(1)
        return sok.lookup_sparse(table, ids)

    for batch in (4, 1, 0, 7):
        assert lookup(tf.zeros([batch, 3], tf.int64)).shape == [batch, 2]
    assert len(traces) == 1


def test_16_bit_rows_accumulate_in_float32():
    for dtype in ("float16", "bfloat16"):
        table = sok.DynamicVariable(1, initializer="ones", dtype=dtype)
        ones = sok.lookup_sparse(table, tf.zeros([1, 4096], tf.int64), combiners="sum")
        assert float(ones[0, 0]) == 4096.0
    table = sok.Variable(tf.constant([[60000.0], [60000.0]], tf.float16), dtype="float16")
    assert float(sok.lookup_sparse(table, tf.constant([[0, 1]]))[0, 0]) == 60000.0


def test_new_id_twice_in_a_batch_gets_one_row():
    table = sok.DynamicVariable(8, initializer="normal")
    first = sok.lookup_sparse(table, tf.constant([7, 7], tf.int64)).numpy()
    again = sok.lookup_sparse(table, tf.constant([7, 7], tf.int64)).numpy()
    np.testing.assert_array_equal(first[0], first[1])
    np.testing.assert_array_equal(first, again)
    assert table.size == [1, 8]
    others = [sok.lookup_sparse(table, tf.constant([i], tf.int64)).numpy() for i in (1, 2, 3)]
    for a, b in itertools.combinations([first[:1], *others], 2):
        assert np.all(a != b)


def test_features_that_share_a_table_merge(rng):
    """One summed gradient for an id, whatever features and bags it came from."""
    table, rows = kinds.table_of(kinds.random_rows(rng, range(5), 2))
    other, other_rows = kinds.table_of(kinds.random_rows(rng, range(5), 3))
    inputs = [[[1, 2], [2, 2]], [[3, 3], [1, 0]], [[2, 4], [4, 4]]]
    gradients = [rng.normal(size=(2, width)).astype(np.float32) for width in (2, 3, 2)]
    combiners = ["mean", "sum", "sqrtn"]
    _, (slices, other_slices), _ = kinds.lookup_with_gradients(
        [table, other, table], [tf.constant(i) for i in inputs], [None] * 3, combiners, gradients
    )
    expected = _total(reference.row_gradients(rows, inputs[i], gradients[i], None, combiners[i]) for i in (0, 2))
    kinds.assert_rows(kinds.slices_as_dict(slices), expected, rtol=1e-5)
    kinds.assert_rows(
        kinds.slices_as_dict(other_slices),
        reference.row_gradients(other_rows, inputs[1], gradients[1], None, "sum"),
        rtol=1e-5,
    )


@pytest.mark.parametrize("combiner", [*reference.COMBINERS, None])
@pytest.mark.parametrize("max_norm", [0.5, 100.0])
def test_max_norm(run, rng, combiner, max_norm):
    table, rows = kinds.table_of(kinds.random_rows(rng, range(6), 4))
    bags = [[1, 2, 2], [3, 4, 1]]
    ws = [[1.0, 0.5, 2.0], [0.3, 1.0, 1.0]]
    flat = [[id_] for bag in bags for id_ in bag]
    flat_ws = [[w] for w in ws[0] + ws[1]]
    used, used_ws, name = (bags, ws, combiner) if combiner else (flat, flat_ws, "sum")
    gradient = rng.normal(size=(len(used), 4)).astype(np.float32)
    shaped = gradient if combiner else gradient.reshape(2, 3, 4)
    (output,), (slices,), (weight_gradient,) = run(
        lambda *args: kinds.lookup_with_gradients(
            [table], [args[0]], [args[1]], [combiner], [args[2]], max_norm=max_norm
        ),
        tf.constant(bags),
        tf.constant(ws),
        shaped,
    )
    np.testing.assert_allclose(
        np.reshape(output, [-1, 4]),
        reference.lookup(rows, used, 4, used_ws, name, max_norm),
        rtol=1e-5,
        atol=1e-6,
    )
    kinds.assert_rows(
        kinds.slices_as_dict(slices),
        reference.row_gradients(rows, used, gradient, used_ws, name, max_norm),
        rtol=1e-4,
        atol=1e-5,
    )
    expected = reference.weight_gradients(rows, used, gradient, used_ws, name, max_norm)
    np.testing.assert_allclose(np.reshape(weight_gradient, [-1]), np.concatenate(expected), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("combiner", reference.COMBINERS)
def test_numeric_gradients(rng, combiner):
    """Finite differences of the lookup itself, for rows and for weights."""
    table, rows = kinds.table_of(kinds.random_rows(rng, range(5), 3))
    bags = [[0, 1, 1], [2, 3, 0]]
    ws = rng.uniform(0.5, 1.5, (2, 3)).astype(np.float32)
    gradient = rng.normal(size=(2, 3))
    _, (slices,), (weight_gradient,) = kinds.lookup_with_gradients(
        [table], [tf.constant(bags)], [tf.constant(ws)], [combiner], [gradient], max_norm=1.0
    )

    def loss(weights):
        output = sok.lookup_sparse(table, tf.constant(bags), weights, combiner, max_norm=1.0)
        return float(np.sum(output.numpy().astype(np.float64) * gradient))

    step = 1e-2
    gradients = kinds.slices_as_dict(slices)
    for id_, column in itertools.product(gradients, range(3)):
        moved = {}
        for sign in (1, -1):
            row = rows[id_].copy()
            row[column] += sign * step
            sok.assign(table, [id_], [row])
            moved[sign] = loss(ws)
        sok.assign(table, [id_], [rows[id_]])
        numeric = (moved[1] - moved[-1]) / (2 * step)
        np.testing.assert_allclose(gradients[id_][column], numeric, rtol=2e-3, atol=2e-3)
    for place in itertools.product(range(2), range(3)):
        shift = np.zeros((2, 3), np.float32)
        shift[place] = step
        numeric = (loss(ws + shift) - loss(ws - shift)) / (2 * step)
        np.testing.assert_allclose(weight_gradient[place], numeric, rtol=2e-3, atol=2e-3)


def test_tape_adds_gradients_of_two_lookups(rng):
    """Two passes over one table in one tape; keys may then repeat, the update sums them."""
    table, rows = kinds.table_of(kinds.random_rows(rng, range(3), 2))
    optimizer = sok.OptimizerWrapper(keras.optimizers.Adagrad(0.1, initial_accumulator_value=0.1))
    with tf.GradientTape() as tape:
        first = sok.lookup_sparse(table, tf.constant([[0, 1]]), combiners="sum")
        second = sok.lookup_sparse(table, tf.constant([[1, 2]]), combiners="sum")
        loss = tf.reduce_sum(first) + 2.0 * tf.reduce_sum(second)
    optimizer.apply_gradients(zip(tape.gradient(loss, [table]), [table], strict=True))
    for id_, g in {0: 1.0, 1: 3.0, 2: 2.0}.items():
        expected = rows[id_] - 0.1 * g / np.sqrt(0.1 + g * g + 1e-7)
        np.testing.assert_allclose(kinds.export_as_dict(table)[id_], expected, rtol=1e-5)


def test_all2all_dense_embedding(run, rng):
    table, rows = kinds.table_of(kinds.random_rows(rng, range(9), 3))
    for ids in ([3, 1], [[1, 2], [8, 8]]):
        output = run(lambda ids: sok.all2all_dense_embedding(table, ids), tf.constant(ids))
        expected = np.asarray([rows[id_] for id_ in np.ravel(ids)]).reshape(*np.shape(ids), 3)
        np.testing.assert_array_equal(output, expected.astype(np.float32))


def test_tf_nn_embedding_lookup(run, rng):
    """TensorFlow's own function works on a table, with ids of any shape."""
    table, rows = kinds.table_of(kinds.random_rows(rng, range(9), 3))

    def lookup(ids, **kwargs):
        with tf.GradientTape() as tape:
            output = tf.nn.embedding_lookup(table, ids, **kwargs)
            loss = tf.reduce_sum(output)
        return output, tape.gradient(loss, table)

    for ids in (5, [3, 1], [[1, 2], [8, 8]], [[[1], [2]]]):
        output, slices = run(lookup, tf.constant(ids))
        expected = np.asarray([rows[id_] for id_ in np.ravel(ids)]).reshape(*np.shape(ids), 3)
        np.testing.assert_array_equal(output, expected.astype(np.float32))
        counts = {id_: [float(np.sum(np.equal(ids, id_)))] * 3 for id_ in np.ravel(ids).tolist()}
        kinds.assert_rows(kinds.slices_as_dict(slices), counts)
    output = tf.nn.embedding_lookup(table, tf.ragged.constant([[1], [], [2, 3]]))
    assert output.row_lengths().numpy().tolist() == [1, 0, 2]
    output = tf.nn.embedding_lookup(table, [1], max_norm=0.1)
    np.testing.assert_allclose(np.linalg.norm(output[0]), 0.1, rtol=1e-5)
    plain = tf.Variable([[1.0], [2.0]])
    np.testing.assert_array_equal(tf.nn.embedding_lookup(plain, [1]), [[2.0]])
