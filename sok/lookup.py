# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""The functions of a custom loop: lookups, and reading and writing of tables."""

from typing import Any

import numpy as np
import tensorflow as tf

from sok import checks, inputs, pipeline
from sok.variables import TableVariable


def _as_list(value: Any, count: int, what: str, *, broadcast: bool = False) -> list:
    """One entry a lookup; `broadcast` lets a value that is not a list, or None, stand for all."""
    if value is None or (broadcast and not isinstance(value, (list, tuple))):
        return [value] * count
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"{what} must be a list of {count}, as params is one, got {value!r}")
    if len(value) != count:
        raise ValueError(f"{what} has {len(value)} entries for {count} lookups")
    return list(value)


def check_table(variable: Any) -> TableVariable:
    if not isinstance(variable, TableVariable):
        raise TypeError(f"expected a sok.Variable or sok.DynamicVariable, got {type(variable).__name__}: {variable!r}")
    return variable


def lookup_sparse(
    params,
    sp_ids,
    sp_weights=None,
    combiners=None,
    use_low_frequency_filter=False,
    *,
    training=True,
    max_norm=None,
    mask_value=None,
    exchange="auto",
):
    """Looks ids up in one table or several, and combines the rows of each bag.

    Args:
        params: a `sok.Variable` or `sok.DynamicVariable`, or a list of them (the same table may occur
            more than once). All go through one pass.
        sp_ids: ids of each: dense [batch] or [batch, hotness], RaggedTensor or SparseTensor.
        sp_weights: None, or weights of the same kinds and shapes.
        combiners: "sum", "mean", "sqrtn" or None (no combining: one vector an id) for each table; a
            bare None means mean for every table.
        use_low_frequency_filter: not available yet; must be False.
        training: True (default): unknown ids are inserted. False: they read the table's default and
            nothing changes.
        max_norm: rows longer than this are scaled down to it as they are read.
        mask_value: dense ids equal to it are left out, for instance padding; uncombined, they give
            zeros.
        exchange: over several ranks, what travels: "rows", which are combined where the examples are;
            "partials", sums of the rows that one rank has of a bag; "reduce_scatter", the same, added
            up on the way; or "auto": what moves fewer bytes, see `sok.stages.choice`.

    Returns:
        [batch, dimension] in the dtype of the rows (a list if `params` is a list). Uncombined: dense
        ids give ids.shape + [dimension], ragged and sparse ids a RaggedTensor.

    Raises:
        ValueError, TypeError: an argument is not what is listed.
        tf.errors.InvalidArgumentError: an id is out of range of a static table; over several ranks, on all of
            them, if it is on one, or if they do not look up the same tables in the same way.

    >>> table = sok.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]])
    >>> sok.lookup_sparse(table, tf.ragged.constant([[1, 3], []]), combiners="mean").numpy()
    array([[5., 6.],
           [0., 0.]], dtype=float32)
    """
    single = not isinstance(params, (list, tuple))
    variables = [check_table(variable) for variable in ([params] if single else params)]
    if use_low_frequency_filter:
        raise ValueError("use_low_frequency_filter is not available; it must be False")
    count = len(variables)
    if not count:
        raise ValueError("params must name at least one table")
    if combiners is None:
        combiners = "mean"
    features = [
        pipeline.Feature(variable, ids, weights, checks.combiner(combiner), f"sp_ids[{i}]", mask_value)
        for i, (variable, ids, weights, combiner) in enumerate(
            zip(
                variables,
                [sp_ids] if single else _as_list(sp_ids, count, "sp_ids"),
                [sp_weights] if single else _as_list(sp_weights, count, "sp_weights"),
                _as_list(combiners, count, "combiners", broadcast=True),
            )
        )
    ]
    norms = {id(variable): checks.max_norm(max_norm) for variable in variables}
    checks.one_of("exchange", exchange, checks.EXCHANGES)
    outputs = pipeline.run(features, training=bool(training), max_norms=norms, exchange=exchange)
    return outputs[0] if single else outputs


def all2all_dense_embedding(param, indices, *, training=True):
    """Rows of dense ids, uncombined.

    Args:
        param: a table.
        indices: integers of shape [batch] or [batch, k].
        training: as for `lookup_sparse`.

    Returns:
        indices.shape + [dimension].

    >>> table = sok.Variable([[1.0, 2.0], [3.0, 4.0]])
    >>> sok.all2all_dense_embedding(table, tf.constant([1, 0])).numpy()
    array([[3., 4.],
           [1., 2.]], dtype=float32)
    """
    feature = pipeline.Feature(check_table(param), indices, None, None, "indices")
    return pipeline.run([feature], training=bool(training))[0]


class _EmbeddingLookup(tf.__internal__.dispatch.OpDispatcher):
    """`tf.nn.embedding_lookup(table, ids, max_norm=None)`, through TensorFlow's own dispatch.

    ids have any shape, or are ragged; unknown ones are inserted.
    """

    def handle(self, args, kwargs):
        def read(params, ids, max_norm=None, name=None):
            del name
            if not isinstance(params, TableVariable):
                return self.NOT_SUPPORTED
            ragged = isinstance(ids, tf.RaggedTensor)
            ids = ids if ragged else inputs.as_tensor(ids, "ids")
            flat = ids.flat_values if ragged else tf.reshape(ids, [-1])
            feature = pipeline.Feature(params, flat, None, None, "ids")
            norms = {id(params): checks.max_norm(max_norm)}
            (rows,) = pipeline.run([feature], training=True, max_norms=norms)
            if ragged:
                return ids.with_flat_values(rows)
            rows = tf.reshape(rows, tf.concat([tf.shape(ids), [params.dimension]], 0))
            rows.set_shape(ids.shape.concatenate(params.dimension))
            return rows

        return read(*args, **kwargs)


_EmbeddingLookup().register(tf.nn.embedding_lookup)


def assign(variable, indices, values):
    """Writes rows: those of known ids are overwritten, unknown ids are inserted.

    Optimizer states of overwritten rows stay; a new row starts with fresh ones. On several ranks each
    rank writes those of the ids that it keeps, without a word to the others: the same call on all of
    them writes all.

    Args:
        variable: a table.
        indices: integers [n], all different.
        values: floats [n, dimension].

    Returns:
        The table.

    Raises:
        TypeError: `variable` is no table.
        tf.errors.InvalidArgumentError: shapes do not fit, or an id is out of range of a static table.

    >>> table = sok.DynamicVariable(2)
    >>> _ = sok.assign(table, [7, -1], [[1.0, 2.0], [3.0, 4.0]])
    >>> sok.lookup_sparse(table, tf.constant([[7, -1]]), combiners="sum").numpy()
    array([[4., 6.]], dtype=float32)
    """
    check_table(variable)
    keys = inputs.to_keys(inputs.as_tensor(indices, "indices"), variable.key_dtype, "indices")
    variable.write_rows(keys, values)
    return variable


def export(variable):
    """All ids of a table and their rows; on several ranks, those that this rank keeps.

    Returns:
        ids [n] in the table's key_type, values [n, dimension] in the dtype of the rows, in no
        particular order (static: ascending).

    Raises:
        TypeError: `variable` is no table.

    >>> ids, values = sok.export(sok.Variable([[1.0, 2.0], [3.0, 4.0]]))
    >>> ids.numpy(), values.numpy()
    (array([0, 1]), array([[1., 2.], [3., 4.]], dtype=float32))
    """
    check_table(variable)
    keys, (values,) = variable.table.export(("values",))
    keys = keys * variable.attributes.id_stride + variable.attributes.id_offset
    if variable.key_dtype == "uint64":
        ids = tf.bitcast(keys, tf.uint64)
    else:
        ids = tf.cast(keys, variable.key_dtype)
    return ids, tf.cast(values, variable.attributes.row_type)


def erase(variable, indices) -> int:
    """Forgets ids, their rows and states; how many of them were there.

    On several ranks each forgets and counts those that it keeps: call it on all of them.

    Args:
        variable: a `sok.DynamicVariable`.
        indices: integers [n].

    Raises:
        TypeError: `variable` is no table.
        tf.errors.InvalidArgumentError: it is a static one.

    >>> table = sok.DynamicVariable(2)
    >>> _ = sok.lookup_sparse(table, tf.constant([3, 4]))
    >>> sok.erase(table, [4, 5])
    1
    """
    check_table(variable)
    keys = inputs.to_keys(inputs.as_tensor(indices, "indices"), variable.key_dtype, "indices")
    return int(variable.table.erase(keys))


def filter_variables(variables):
    """Splits variables into tables and others, two lists.

    >>> table, bias = sok.DynamicVariable(2, name="items"), tf.Variable(0.0)
    >>> tables, others = sok.filter_variables([bias, table])
    >>> tables[0] is table, others[0] is bias
    (True, True)
    """
    tables = [v for v in variables if isinstance(v, TableVariable)]
    return tables, [v for v in variables if not isinstance(v, TableVariable)]


def check_out(value) -> Any:
    """A table, a record of ids or any structure of tensors as numpy, for a look while debugging.

    A table gives a dict: "ids", "values", and one entry an optimizer state.

    >>> sok.check_out(sok.Variable([[1.0, 2.0]]))
    {'ids': array([0]), 'values': array([[1., 2.]], dtype=float32)}
    >>> sok.check_out({"loss": tf.constant(2)})
    {'loss': array(2, dtype=int32)}
    """
    if isinstance(value, TableVariable):
        planes = tuple(value.table.planes())
        keys, values = value.table.export(planes)
        ids = value.ids_of(np.asarray(keys))
        return {"ids": ids, **{name: np.asarray(v) for name, v in zip(planes, values)}}
    if isinstance(value, inputs.Record):
        return {
            name: None if part is None else np.asarray(part)
            for name, part in (
                ("ids", value.ids),
                ("row_splits", value.row_splits),
                ("weights", value.weights),
            )
        }
    return tf.nest.map_structure(np.asarray, value)
