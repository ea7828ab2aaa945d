# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""The optimizer wrapper: dense variables go to the wrapped optimizer, table rows to one fused op.

This file has what all wrappers do; `keras3.py` and `tf_keras.py` make them optimizers of their Keras.
"""

import dataclasses
import importlib
import math
import numbers
from typing import Any

import keras
import tensorflow as tf

from sok import _native, comm
from sok.inputs import to_keys
from sok.lookup import filter_variables
from sok.optimizers import across_ranks
from sok.optimizers.clipping import TableGradient, all_finite, clip
from sok.optimizers.per_table import resolve_per_table
from sok.optimizers.rules import LegacySource, Source, TfKerasSource, source_type
from sok.stages.merge import MergedSlices, merge_slices, unread
from sok.stages.update import OPTIMIZERS, TableStep, update
from sok.variables import TableVariable

SCALE_LINE = 'sok.OptimizerWrapper(keras.optimizers.Adam(...), loss_scale="dynamic")'


@dataclasses.dataclass
class _Settings:
    """What a wrapper was constructed with, out of sight of Keras's tracking of attributes."""

    name: str
    update: str
    sparse_reduction: str
    dense_reduction: str | None
    loss_scale: str | float | None
    jit_compile: bool
    source: Source
    table_sources: dict[str, Source]
    names_checked: bool = False
    undecayed: set[int] = dataclasses.field(default_factory=set)


class OptimizerWrapper:
    """Trains tables and dense variables with one optimizer of Keras 3 or tf_keras.

    The object belongs to the Keras of the optimizer given: it goes into `model.compile` and into custom
    loops in its place. Dense variables are left to that optimizer. Rows get its formula, learning rate or
    schedule, clipping and decoupled weight decay from an op that touches all tables at once; the
    gradients of one row are summed before the one update it gets.

    Args:
        optimizer: an optimizer of one of the types in `sok.optimizers.supported()`, its name or config.
        update: "local" (default): only rows of the batch change. "global": every row is treated as a
            dense optimizer would, with a zero gradient if it is not in the batch. "lazy_global": the
            same result, but in host memory a row that is not in the batch catches up when it is next read (on a
            GPU at once, as with "global"); for rules that have a closed form for it.
        sparse_reduction: over several ranks, "mean" (default) or "sum" of their gradients for a row.
        dense_reduction: over several ranks, "mean" (default) of their gradients of dense variables, or
            None to leave these as they are, for instance under `hvd.DistributedGradientTape`.
        loss_scale: for float16: "dynamic", or a number. A dynamic scale halves, and nothing is updated,
            when a gradient is not finite. The object is then a `LossScaleOptimizer` of its Keras too,
            and `compile` does not wrap it again.
        per_table: another optimizer, or only another learning rate (a number or a schedule), for some
            tables: a dict by table or by its name.
        name: of the optimizer.
        jit_compile: inside of a `tf.function`, as `fit` makes one, XLA makes one program of the step of all
            dense variables, which otherwise has several ops for each of them; they must be on one device.
            (`model.compile(jit_compile=True)` cannot be had with tables: XLA does not know their ops.)
            The step stays as it is under a `tf.distribute` strategy, and with a sparse gradient, as of
            `keras.layers.Embedding`, whose number of ids is not known when the function is traced: XLA
            would compile for each number anew. Optimizers of tf_keras have such an argument of their own.

    Raises:
        ValueError: an argument is not what is listed, or the optimizer has no sparse counterpart.
        TypeError: `optimizer` is none.

    >>> table = sok.DynamicVariable(1, initializer="ones")
    >>> optimizer = sok.OptimizerWrapper(keras.optimizers.SGD(0.1))
    >>> with tf.GradientTape() as tape:
    ...     loss = tf.reduce_sum(sok.lookup_sparse(table, tf.constant([[5, 5]]), combiners="sum"))
    >>> _ = optimizer.apply_gradients(zip(tape.gradient(loss, [table]), [table]))
    >>> sok.lookup_sparse(table, tf.constant([5])).numpy()
    array([[0.8]], dtype=float32)
    """

    inner_optimizer: Any
    per_table: dict[str, Any]
    _settings: _Settings

    def __new__(
        cls,
        optimizer,
        update="local",
        sparse_reduction="mean",
        dense_reduction="mean",
        loss_scale=None,
        per_table=None,
        name=None,
        jit_compile=False,
    ):
        if cls is OptimizerWrapper:
            cls = _class_for(optimizer, loss_scale)
        return super().__new__(cls)

    def __init__(
        self,
        optimizer,
        update="local",
        sparse_reduction="mean",
        dense_reduction="mean",
        loss_scale=None,
        per_table=None,
        name=None,
        jit_compile=False,
    ):
        optimizer = self._resolve_bare(optimizer)
        for label, value, allowed in (
            ("update", update, _native.REACHES),
            ("sparse_reduction", sparse_reduction, across_ranks.SPARSE_REDUCTIONS),
            ("dense_reduction", dense_reduction, across_ranks.DENSE_REDUCTIONS),
        ):
            if value not in allowed:
                raise ValueError(f"{label} must be one of {', '.join(map(str, allowed))}, got {value!r}")
        if loss_scale not in (None, "dynamic"):
            is_number = isinstance(loss_scale, numbers.Real) and not isinstance(loss_scale, bool)
            if not is_number or not 0 < loss_scale < math.inf:
                raise ValueError(f'loss_scale must be None, "dynamic" or a positive number, got {loss_scale!r}')
            loss_scale = float(loss_scale)
        if loss_scale is not None and getattr(optimizer, "loss_scale_factor", None):
            raise ValueError("loss_scale is given twice: construct the optimizer without loss_scale_factor")
        if not isinstance(jit_compile, bool):
            raise ValueError(f"jit_compile must be True or False, got {jit_compile!r}")
        source = source_type(optimizer)(optimizer)
        if jit_compile and type(source) is not Source:
            raise ValueError("jit_compile is for optimizers of Keras 3: give it to the optimizer of tf_keras itself")
        per_table = resolve_per_table(optimizer, per_table or {}, self._resolve_bare)
        name = name or f"sok_{getattr(optimizer, 'name', None) or optimizer._name}"
        table_sources = {table: type(source)(other) for table, other in per_table.items()}
        if update == "lazy_global":
            for each in (source, *table_sources.values()):
                each.check_catch_up()
        settings = _Settings(
            name,
            update,
            sparse_reduction,
            dense_reduction,
            loss_scale,
            jit_compile,
            source,
            table_sources,
        )
        self._initialize_base(optimizer, loss_scale, name)
        self._settings = settings
        self.per_table = per_table

    # For subclasses.

    @classmethod
    def _resolve(cls, optimizer: Any) -> Any:
        """An optimizer from one, its name or its config."""
        raise NotImplementedError

    def _initialize_base(self, optimizer: Any, loss_scale: Any, name: str) -> None:
        """Calls the base class's constructor, and keeps the optimizer as `inner_optimizer`."""
        raise NotImplementedError

    # Construction.

    @classmethod
    def _resolve_bare(cls, optimizer: Any) -> Any:
        """As `_resolve`, of what is not wrapped yet."""
        optimizer = cls._resolve(optimizer)
        if isinstance(optimizer, OptimizerWrapper):
            raise ValueError("the optimizer is a sok.OptimizerWrapper already; wrap it once")
        if "LossScale" in type(optimizer).__name__:
            raise ValueError(
                "a LossScaleOptimizer cannot scale the gradients of tables. Give the optimizer inside of "
                f"it to sok.OptimizerWrapper and write: {SCALE_LINE}"
            )
        return optimizer

    # One step counter and one learning rate, the wrapped optimizer's.

    @property
    def iterations(self):
        return self.inner_optimizer.iterations

    @iterations.setter
    def iterations(self, variable):
        # The constructors of some base classes set one, which is of no use here.
        if hasattr(self, "_settings"):
            self.inner_optimizer.iterations = variable

    @property
    def learning_rate(self):
        return self.inner_optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, value):
        self.inner_optimizer.learning_rate = value

    lr = learning_rate

    def exclude_from_weight_decay(self, var_list=None, var_names=None):
        """Leaves variables and tables out of weight decay, as the method of Keras does.

        Args:
            var_list: dense variables and tables.
            var_names: patterns; what has one in its name is left out.
        """
        tables, dense = filter_variables(var_list or [])
        self._settings.undecayed |= {id(table) for table in tables}
        self.inner_optimizer.exclude_from_weight_decay(dense, var_names)

    def _config(self, serialize) -> dict[str, Any]:
        settings = self._settings
        return {
            "optimizer": serialize(self.inner_optimizer),
            "update": settings.update,
            "sparse_reduction": settings.sparse_reduction,
            "dense_reduction": settings.dense_reduction,
            "loss_scale": settings.loss_scale,
            "per_table": {table: serialize(other) for table, other in self.per_table.items()},
            "jit_compile": settings.jit_compile,
            "name": settings.name,
        }

    def state_names(self, table: TableVariable) -> list[str]:
        """The planes that a table's rows get beside their values, at the first step at the latest."""
        rule = self._source_of(table).rule
        return [f"{rule}.{state['name']}" for state in OPTIMIZERS[rule]["states"]]

    # The step.

    def _source_of(self, table: TableVariable) -> Source:
        return self._settings.table_sources.get(table.name, self._settings.source)

    def _check_names(self, variables: list) -> None:
        """Refuses a name in `per_table` that no table has: it would be ignored."""
        tables, _ = filter_variables(variables)
        if self._settings.names_checked or not tables:
            return
        known = sorted(table.name for table in tables)
        unknown = sorted(set(self.per_table) - set(known))
        if unknown:
            raise ValueError(f"per_table names {', '.join(unknown)}, but the tables are {', '.join(known)}")
        self._settings.names_checked = True

    @tf.autograph.experimental.do_not_convert
    def _step(self, pairs: list[tuple[Any, Any]], apply_dense, *, loss_scale=None, check_finite=False):
        """One step for dense variables and tables.

        Args:
            pairs: (gradient, variable) without None.
            apply_dense: called with the dense pairs, perhaps none; does the wrapped optimizer's step and
                counts it.
            loss_scale: what the gradients are still to be divided by; None: nothing. That of dense ones
                is left to `apply_dense`.
            check_finite: a gradient that is not finite, on any rank, suppresses the step.

        Returns:
            whether the step was done: a boolean scalar, or True without `check_finite`.
        """
        settings = self._settings
        communicator = comm.current()
        _check_different([v for _, v in pairs if isinstance(v, TableVariable)])
        dense = [(g, v) for g, v in pairs if not isinstance(v, TableVariable)]
        dense = across_ranks.reduce_dense(communicator, settings.dense_reduction, dense)
        tables = self._merge([(g, v) for g, v in pairs if isinstance(v, TableVariable)])
        tables = across_ranks.gather_replicated(communicator, tables)
        # Clipping reads the rows' gradients; otherwise only the update does.
        fuse = not any(s.clips() for s in (settings.source, *(t.source for t in tables)))
        apply = True
        if check_finite:
            unmerged = unread([t.slices for t in tables]) if fuse and settings.update == "local" else []
            apply = across_ranks.agree(communicator, all_finite(dense, tables, unmerged))
        unscale = 1.0 if loss_scale is None else 1.0 / loss_scale
        dense, tables, scale = clip(
            settings.source,
            dense,
            tables,
            dense_scale=unscale,
            table_scale=unscale * across_ranks.table_scale(communicator, settings.sparse_reduction),
            sum_over_ranks=lambda squares: across_ranks.sum_squares(communicator, squares),
        )
        # Before the dense step, which advances the step's number and perhaps the learning rate.
        if tables:
            self._update_tables(tables, scale, apply, fuse)
        if check_finite:
            tf.cond(apply, lambda: _no_output(apply_dense(dense)), lambda: None)
        else:
            apply_dense(dense)
        return apply

    def _merge(self, pairs: list[tuple[Any, TableVariable]]) -> list[TableGradient]:
        slices = merge_slices([v.table for _, v in pairs], [_as_slices(g, v) for g, v in pairs])
        return [TableGradient(v, s, self._source_of(v)) for s, (_, v) in zip(slices, pairs)]

    def _update_tables(self, tables: list[TableGradient], scale: Any, apply: Any, fuse: bool) -> None:
        iterations = tf.convert_to_tensor(self.inner_optimizer.iterations)
        rates: dict[int, tf.Tensor] = {}
        hyper: dict[tuple[int, bool], tf.Tensor] = {}
        steps = []
        for gradient in tables:
            source, variable = gradient.source, gradient.variable
            decay = id(variable) not in self._settings.undecayed and all(
                each.decays(variable.name) for each in (source, self._settings.source)
            )
            if id(source) not in rates:
                rates[id(source)] = source.learning_rate(iterations)
            if (id(source), decay) not in hyper:
                hyper[id(source), decay] = source.hyper(rates[id(source)], iterations, decay)
            steps.append(
                TableStep(
                    variable.table,
                    gradient.slices,
                    source.rule,
                    hyper[id(source), decay],
                    self._settings.update,
                    source.initial,
                )
            )
        update(steps, iterations, scale=scale, apply=apply, fuse=fuse)


def _class_for(optimizer: Any, loss_scale: Any) -> type[OptimizerWrapper]:
    """The class of wrappers for an optimizer's Keras."""
    keras3 = isinstance(optimizer, (str, dict, OptimizerWrapper))
    source = Source if keras3 else source_type(optimizer)
    # Not at the top: these files need this one, and tf_keras is not always there.
    module = importlib.import_module("sok.optimizers.keras3" if source is Source else "sok.optimizers.tf_keras")
    plain, scaled = {
        Source: ("Keras3Wrapper", "ScaledKeras3Wrapper"),
        TfKerasSource: ("TfKerasWrapper", "ScaledTfKerasWrapper"),
        LegacySource: ("LegacyWrapper", "ScaledLegacyWrapper"),
    }[source]
    return getattr(module, plain if loss_scale is None else scaled)


def _check_different(tables: list[TableVariable]) -> None:
    for place, table in enumerate(tables):
        if any(table is other for other in tables[:place]):
            raise ValueError(
                f"the table {table.name!r} is given twice in one step: add its gradients first, or apply them one "
                "after the other"
            )


def _no_output(result: Any) -> None:
    del result


def _as_slices(gradient: Any, variable: TableVariable) -> tf.IndexedSlices:
    if not isinstance(gradient, tf.IndexedSlices):
        raise TypeError(
            f"the gradient of the table {variable.name!r} must be the tf.IndexedSlices that the tape "
            f"gave, got {type(gradient).__name__}"
        )
    if isinstance(gradient, MergedSlices):
        return gradient  # of a lookup, and perhaps not merged yet: not asked for its result
    keys = tf.convert_to_tensor(gradient.indices)
    # What a tape gave has the keys of a table of uint64 as int64.
    if variable.key_dtype != "uint64" or keys.dtype != tf.int64:
        keys = to_keys(keys, variable.key_dtype, f"the gradient of the table {variable.name!r}")
    return tf.IndexedSlices(tf.convert_to_tensor(gradient.values), keys)


def SGD(lr=0.01):  # noqa: N802  the name that SOK 2 has
    """Plain gradient descent for tables and dense variables.

    Args:
        lr: learning rate.

    >>> table = sok.Variable([[1.0], [2.0]])
    >>> with tf.GradientTape() as tape:
    ...     loss = tf.reduce_sum(sok.lookup_sparse(table, tf.constant([[1, 1]]), combiners="sum"))
    >>> _ = sok.SGD(0.5).apply_gradients([(tape.gradient(loss, table), table)])
    >>> table.numpy().state["values"].tolist()
    [[1.0], [1.0]]
    """
    return OptimizerWrapper(keras.optimizers.SGD(float(lr)))
