# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Random sequences of operations against a Python dict; random lookups against the oracle.

A failing example is printed with the blob that replays it.
"""

import keras
import kinds
import numpy as np
import pytest
import reference
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import sok

# Few different ids, so that they meet again; sentinels among them.
KEYS = st.sampled_from([*reference.SENTINELS["int64"], *range(2, 40)])
MANY_KEYS = st.lists(KEYS, max_size=30)


class TableAgainstDict(RuleBasedStateMachine):
    """Rows, states and size of a table under insert, find, assign, erase, update, grow and copy."""

    collide = False

    @initialize(capacity=st.sampled_from([None, 1, 3, 16]), dtype=st.sampled_from(reference.ROW_DTYPES))
    def create(self, capacity, dtype):
        self.table = sok.DynamicVariable(
            3, initializer="normal", seed=5, capacity=capacity, dtype=dtype, _collide=self.collide
        )
        # Where initial values are read without inserting.
        self.oracle = sok.DynamicVariable(3, initializer="normal", seed=5, dtype=dtype)
        self.optimizer = sok.OptimizerWrapper(keras.optimizers.Adagrad(0.5, 0.25))
        self.rows, self.accumulators, self.dtype = {}, {}, dtype
        self.counter = 0

    def _initial(self, ids):
        values = sok.lookup_sparse(self.oracle, tf.constant(ids, tf.int64), training=False)
        return dict(zip(ids, tf.cast(values, tf.float32).numpy(), strict=True))

    def _insert(self, ids):
        for id_, row in self._initial(ids).items():
            if id_ not in self.rows:
                self.rows[id_] = row
                self.accumulators[id_] = np.full(3, 0.25, np.float32)

    @rule(ids=MANY_KEYS)
    def insert(self, ids):
        self._insert(ids)
        found = sok.lookup_sparse(self.table, tf.constant(ids, tf.int64, shape=[len(ids)]))
        for id_, row in zip(ids, tf.cast(found, tf.float32).numpy(), strict=True):
            np.testing.assert_array_equal(row, self.rows[id_])

    @rule(ids=MANY_KEYS)
    def find(self, ids):
        found = sok.lookup_sparse(self.table, tf.constant(ids, tf.int64, shape=[len(ids)]), training=False)
        expected = {**self._initial(ids), **self.rows}
        for id_, row in zip(ids, tf.cast(found, tf.float32).numpy(), strict=True):
            np.testing.assert_array_equal(row, expected[id_])

    @rule(ids=st.lists(KEYS, max_size=20, unique=True))
    def assign(self, ids):
        values = np.arange(3 * len(ids), dtype=np.float32).reshape(len(ids), 3) + self.counter
        self.counter += 1
        self._insert(ids)
        sok.assign(self.table, tf.constant(ids, tf.int64, shape=[len(ids)]), values)
        self.rows.update(zip(ids, kinds.rounded(values, self.dtype), strict=True))

    @rule(ids=MANY_KEYS)
    def erase(self, ids):
        there = set(ids) & set(self.rows)
        assert sok.erase(self.table, tf.constant(ids, tf.int64, shape=[len(ids)])) == len(there)
        for id_ in there:
            del self.rows[id_], self.accumulators[id_]

    @rule(ids=MANY_KEYS)
    def update(self, ids):
        """One Adagrad step; repeated ids are summed first, unknown ids are inserted first."""
        self._insert(ids)
        gradients = np.asarray([[1.0, 0.5, -0.25]] * len(ids), np.float32).reshape(-1, 3)
        slices = tf.IndexedSlices(gradients, tf.constant(ids, tf.int64, shape=[len(ids)]))
        self.optimizer.apply_gradients([(slices, self.table)])
        for id_, g in reference.merge(ids, gradients).items():
            g = g.astype(np.float32)
            self.accumulators[id_] = self.accumulators[id_] + g * g
            step = 0.5 * g / np.sqrt(self.accumulators[id_] + np.float32(1e-7))
            self.rows[id_] = kinds.rounded(self.rows[id_] - step, self.dtype)
        # Rounding may differ in the last bit: go on from what the table has.
        self._compare(rtol=2e-2 if self.dtype == "bfloat16" else 5e-3, atol=1e-2)
        self.rows = self._exported()

    @rule(start=st.integers(100, 10**6), count=st.integers(1, 400))
    def grow(self, start, count):
        ids = list(range(start, start + count))
        self._insert(ids)
        sok.lookup_sparse(self.table, tf.constant(ids, tf.int64))

    @rule()
    def copy(self):
        """All of it into another table, which is used from now on."""
        other = sok.DynamicVariable(3, initializer="normal", dtype=self.dtype, _collide=self.collide)
        sok.lookup_sparse(other, tf.constant([1, 2, 3], tf.int64))
        other.assign(self.table.numpy())
        self.table = other

    def _exported(self):
        return {id_: row.astype(np.float32) for id_, row in kinds.export_as_dict(self.table).items()}

    def _compare(self, **tolerance):
        kinds.assert_rows(self._exported(), self.rows, **tolerance)

    @invariant()
    def same_as_the_dict(self):
        if not hasattr(self, "table"):
            return
        assert self.table.size == [len(self.rows), 3]
        self._compare(rtol=0)
        counters = sok.stats(self.table)[self.table.name]
        assert counters["rows"] == len(self.rows) <= counters["row_limit"]
        found = sok.check_out(self.table)
        if "adagrad.accumulator" in found:
            accumulators = dict(zip(found["ids"].tolist(), found["adagrad.accumulator"], strict=True))
            kinds.assert_rows(accumulators, self.accumulators, rtol=1e-5)


class CollidingTableAgainstDict(TableAgainstDict):
    """The same with a hash that is 0 for every key."""

    collide = True


_SETTINGS = settings(
    max_examples=20,
    stateful_step_count=20,
    suppress_health_check=list(HealthCheck),
)
TestTable = TableAgainstDict.TestCase
TestTable.settings = _SETTINGS
TestCollidingTable = CollidingTableAgainstDict.TestCase
TestCollidingTable.settings = _SETTINGS


@pytest.mark.parametrize("collide", [False, True])
def test_many_random_operations(rng, collide):
    """10^5 inserts, erases and re-inserts in batches."""
    table = sok.DynamicVariable(1, initializer="normal", seed=1, _collide=collide)
    universe = rng.integers(-(2**63), 2**63 - 1, 300 if collide else 20_000)
    live = set()
    done, batch = 0, 100 if collide else 5_000
    while done < (5_000 if collide else 100_000):
        ids = rng.choice(universe, batch)
        if rng.random() < 0.6:
            sok.lookup_sparse(table, ids)
            live |= set(ids.tolist())
        else:
            assert sok.erase(table, ids) == len(live & set(ids.tolist()))
            live -= set(ids.tolist())
        done += batch
        assert table.size[0] == len(live)
    exported = sok.export(table)[0].numpy().tolist()
    assert len(exported) == len(set(exported)) == len(live)
    assert set(exported) == live


_BAGS = st.lists(st.lists(st.integers(0, 7), max_size=6), max_size=7)


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(data=st.data(), bags=_BAGS, width=st.integers(1, 9), combiner=st.sampled_from(reference.COMBINERS))
def test_random_lookups(data, bags, width, combiner):
    """Outputs and gradients of any bags and weights, in every kind of input that can hold them."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1), label="seed"))
    table, rows = kinds.table_of(kinds.random_rows(rng, range(8), width))
    numbers = st.sampled_from([0.0, 1.0, -1.0, 0.5, 2.0, -3.0])
    weighted = data.draw(st.booleans(), label="weighted")
    ws = [[data.draw(numbers) for _ in bag] for bag in bags] if weighted else None
    gradient = rng.normal(size=(len(bags), width)).astype(np.float32)
    kind = data.draw(st.sampled_from(["ragged32", "ragged64", "sparse", "nested"]), label="kind")
    (output,), (slices,), weight_gradients = kinds.lookup_with_gradients(
        [table],
        [kinds.make(kind, bags, "int64")],
        [None if ws is None else kinds.make(kind, ws, "float32")],
        [combiner],
        [gradient],
    )
    close = {"rtol": 1e-4, "atol": 1e-4}
    np.testing.assert_allclose(output, reference.lookup(rows, bags, width, ws, combiner), **close)
    kinds.assert_rows(
        kinds.slices_as_dict(slices),
        reference.row_gradients(rows, bags, gradient, ws, combiner),
        **close,
    )
    if ws is not None:
        expected = reference.weight_gradients(rows, bags, gradient, ws, combiner)
        flat = np.asarray([g for bag in expected for g in bag])
        np.testing.assert_allclose(weight_gradients[0], flat, **close)
