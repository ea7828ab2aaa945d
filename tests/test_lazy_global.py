# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""update="lazy_global": rows that catch up when they are read are those that a dense optimizer has."""

import keras
import kinds
import numpy as np
import pytest
import tensorflow as tf

import sok

ROWS, WIDTH = 10, 3
CLOSE = {"rtol": 5e-5, "atol": 5e-6}

SCHEDULE = keras.optimizers.schedules.PiecewiseConstantDecay([3, 9], [0.3, 0.05, 0.2])
OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.1),
    "decay": lambda: keras.optimizers.SGD(SCHEDULE, weight_decay=0.3),
    "momentum": lambda: keras.optimizers.SGD(SCHEDULE, momentum=0.9),
    "nesterov": lambda: keras.optimizers.SGD(0.1, momentum=0.95, nesterov=True),
    "rmsprop": lambda: keras.optimizers.RMSprop(0.05, rho=0.8),
    "rmsprop decay": lambda: keras.optimizers.RMSprop(0.05, weight_decay=0.5),
    "rmsprop momentum": lambda: keras.optimizers.RMSprop(0.02, momentum=0.9),
    "rmsprop centered": lambda: keras.optimizers.RMSprop(0.02, centered=True, epsilon=1e-3),
    "rmsprop centered momentum": lambda: keras.optimizers.RMSprop(0.02, centered=True, momentum=0.7, epsilon=1e-3),
}
every_optimizer = pytest.mark.parametrize("name", OPTIMIZERS)


class Twins:
    """A lazy table, and the same rows as a dense variable of the bare optimizer."""

    def __init__(self, make, rng, table=None, values=None):
        self.rng = rng
        self.values = rng.normal(size=(ROWS, WIDTH)).astype(np.float32) if values is None else values
        self.table = kinds.table_of(dict(enumerate(self.values)))[0] if table is None else table
        self.optimizer = sok.OptimizerWrapper(make(), "lazy_global")
        self.dense, self.bare = keras.Variable(self.values), make()

    def step(self, ids=None):
        # Few ids a step: most rows miss several in a row.
        ids = self.rng.integers(0, ROWS, 2) if ids is None else np.asarray(ids, np.int64)
        gradients = self.rng.normal(size=(len(ids), WIDTH)).astype(np.float32)
        summed = np.zeros((ROWS, WIDTH), np.float32)
        np.add.at(summed, ids, gradients)
        slices = tf.IndexedSlices(tf.constant(gradients), tf.constant(ids, tf.int64))
        self.optimizer.apply_gradients([(slices, self.table)])
        self.bare.apply([tf.constant(summed)], [self.dense])

    def check_lookup(self, ids, **kwargs):
        rows = sok.lookup_sparse(self.table, tf.constant(ids, tf.int64), **kwargs).numpy()
        np.testing.assert_allclose(rows, self.dense.numpy()[ids], **CLOSE)

    def check(self):
        ids, rows = sok.export(self.table)
        exported = dict(zip(ids.numpy().tolist(), rows.numpy(), strict=True))
        kinds.assert_rows(exported, dict(enumerate(self.dense.numpy())), **CLOSE)


@every_optimizer
@pytest.mark.parametrize("kind", ["hash", "static"])
def test_whoever_reads_rows_sees_them_up_to_date(name, kind, rng):
    values = rng.normal(size=(ROWS, WIDTH)).astype(np.float32)
    table = sok.Variable(values) if kind == "static" else None
    twins = Twins(OPTIMIZERS[name], rng, table, values)
    for number in range(16):
        twins.step([] if number == 6 else None)
        if number % 5 == 2:
            twins.check_lookup([number % ROWS, 0, 0, 9], training=False)
            twins.check_lookup([4, number % ROWS, 4], training=True)
        if number == 12:
            twins.check()
    twins.check()


@every_optimizer
def test_training_that_reads_before_each_step(name, rng):
    """As in a model: a lookup, its gradient, the update."""
    values = rng.normal(size=(ROWS, WIDTH)).astype(np.float32)
    tables = [kinds.table_of(dict(enumerate(values)))[0] for _ in range(2)]
    optimizers = [sok.OptimizerWrapper(OPTIMIZERS[name](), u) for u in ("global", "lazy_global")]
    for _ in range(12):
        ids = tf.constant(rng.integers(0, ROWS, (2, 2)))
        losses = []
        for table, optimizer in zip(tables, optimizers, strict=True):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.square(sok.lookup_sparse(table, ids, combiners="mean") - 0.5))
            optimizer.apply_gradients([(tape.gradient(loss, table), table)])
            losses.append(float(loss))
        np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4, atol=1e-6)


@every_optimizer
@pytest.mark.parametrize("what", ["weights", "max_norm"])
def test_gradients_that_read_rows_see_them_up_to_date(name, what, rng, run):
    """Of weights, and of rows clipped to max_norm: also when steps of other batches came in between."""
    values = rng.normal(size=(ROWS, WIDTH)).astype(np.float32)
    tables = [kinds.table_of(dict(enumerate(values)))[0] for _ in range(2)]
    optimizers = [sok.OptimizerWrapper(OPTIMIZERS[name](), u) for u in ("global", "lazy_global")]
    for optimizer, table in zip(optimizers, tables, strict=True):
        optimizer.build([table])
    others = tf.IndexedSlices(tf.ones([1, WIDTH]), tf.constant([9], tf.int64))
    ids = tf.constant([[0, 1], [2, 0]])
    weights = tf.constant([[0.5, 2.0], [1.0, 3.0]])

    def gradient(table, optimizer):
        with tf.GradientTape() as tape:
            tape.watch(weights)
            loss = tf.reduce_sum(
                sok.lookup_sparse(
                    table, ids, weights, combiners="mean", max_norm=0.4 if what == "max_norm" else None
                )
                ** 2
            )
        for _ in range(3):
            optimizer.apply([others], [table])
        slices, of_weights = tape.gradient(loss, [table, weights])
        return of_weights if what == "weights" else tf.gather(slices.values, tf.argsort(slices.indices))

    for step in range(3):
        dense, lazy = (run(lambda t=t, o=o: gradient(t, o)) for t, o in zip(tables, optimizers, strict=True))
        np.testing.assert_allclose(lazy, dense, rtol=1e-4, atol=1e-5, err_msg=f"step {step}")
        batch = tf.IndexedSlices(tf.ones([3, WIDTH]), tf.constant([0, 1, 2], tf.int64))
        for optimizer, table in zip(optimizers, tables, strict=True):
            optimizer.apply([batch], [table])


def test_rows_that_come_later_missed_nothing_before():
    """A row of a hash table does not exist before its insertion: neither do steps that it could miss."""
    for update in ("global", "lazy_global"):
        table = sok.DynamicVariable(1, initializer="ones")
        optimizer = sok.OptimizerWrapper(keras.optimizers.SGD(0.1, weight_decay=1.0), update)

        def step(key, table=table, optimizer=optimizer):
            optimizer.apply_gradients([(tf.IndexedSlices(tf.zeros([1, 1]), tf.constant([key])), table)])

        step(1)
        step(1)
        sok.lookup_sparse(table, tf.constant([7]), training=True)
        step(8)
        sok.erase(table, [1])
        sok.lookup_sparse(table, tf.constant([1]), training=True)
        step(9)
        rows = sok.lookup_sparse(table, tf.constant([1, 7, 8, 9]), training=False).numpy()[:, 0]
        np.testing.assert_allclose(rows, [0.9, 0.81, 0.81, 0.9], rtol=1e-6)


@every_optimizer
def test_saved_tables_are_up_to_date_and_go_on(name, rng, tmp_path):
    twins = Twins(OPTIMIZERS[name], rng)
    for _ in range(5):
        twins.step()
    path = tf.train.Checkpoint(table=twins.table, optimizer=twins.optimizer).save(tmp_path / "c")
    fresh = sok.DynamicVariable(WIDTH)
    optimizer = sok.OptimizerWrapper(OPTIMIZERS[name](), "lazy_global")
    optimizer.build([fresh])
    tf.train.Checkpoint(table=fresh, optimizer=optimizer).restore(path)
    twins.table, twins.optimizer = fresh, optimizer
    twins.check()
    for _ in range(5):
        twins.step()
    # What is set from outside counts from now.
    sok.assign(twins.table, [3], np.ones((1, WIDTH), np.float32))
    twins.dense.assign(tf.tensor_scatter_nd_update(twins.dense.value, [[3]], tf.ones([1, WIDTH])))
    for _ in range(5):
        twins.step()
    twins.check()


def test_another_rule_first_brings_all_rows_up_to_date(rng):
    twins = Twins(lambda: keras.optimizers.SGD(0.1, momentum=0.9), rng)
    for _ in range(4):
        twins.step()
    # Another momentum, as Keras would go on with the momentums it has.
    twins.optimizer.inner_optimizer.momentum = twins.bare.momentum = 0.5
    for _ in range(3):
        twins.step()
    # Local updates: the others stay where they are now.
    stays = twins.dense.numpy()[1:]
    sok.OptimizerWrapper(keras.optimizers.SGD(0.1)).apply_gradients(
        [(tf.IndexedSlices(tf.ones([1, WIDTH]), tf.constant([0])), twins.table)]
    )
    ids, rows = sok.export(twins.table)
    np.testing.assert_allclose(rows.numpy()[np.argsort(ids)][1:], stays, **CLOSE)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.99, 1.0])
def test_long_absence(momentum, rng):
    twins = Twins(lambda: keras.optimizers.SGD(0.01, momentum=momentum), rng)
    twins.step(range(ROWS))
    for _ in range(300):
        twins.step([0])
    twins.check_lookup(list(range(1, ROWS)), training=False)


def test_decay_that_adds_up_beyond_a_float(rng):
    """After much decay all rows catch up on their own, before a float's digits run out."""
    table = sok.Variable(np.full((3, 1), 1e10, np.float32))
    optimizer = sok.OptimizerWrapper(keras.optimizers.SGD(1.0, weight_decay=0.5), "lazy_global")
    for _ in range(40):
        optimizer.apply_gradients([(tf.IndexedSlices(tf.zeros([1, 1]), tf.constant([0])), table)])
    np.testing.assert_allclose(table.numpy(), 1e10 * 0.5**40, rtol=1e-5)


def test_sixteen_bit_rows(rng):
    values = dict(enumerate(rng.normal(size=(ROWS, WIDTH))))
    table, stored = kinds.table_of(values, dtype="bfloat16")
    values = np.float32([stored[i] for i in range(ROWS)])
    twins = Twins(lambda: keras.optimizers.SGD(0.1, momentum=0.9), rng, table, values)
    for _ in range(6):
        twins.step()
    rows = sok.lookup_sparse(table, tf.range(ROWS, dtype=tf.int64), training=False)
    np.testing.assert_allclose(tf.cast(rows, tf.float32).numpy(), twins.dense.numpy(), rtol=0.05, atol=0.05)


def test_a_suppressed_step_is_none(rng):
    table = sok.Variable(np.ones((2, 1), np.float32))
    optimizer = sok.OptimizerWrapper(keras.optimizers.SGD(0.1, weight_decay=1.0), "lazy_global", loss_scale="dynamic")
    optimizer.apply([tf.IndexedSlices(tf.fill([1, 1], np.float32(np.inf)), tf.constant([0]))], [table])
    optimizer.apply([tf.IndexedSlices(tf.zeros([1, 1]), tf.constant([0]))], [table])
    np.testing.assert_allclose(table.numpy(), 0.9, rtol=1e-6)


def test_many_threads_read_rows_that_lag(rng):
    """Evaluation on several threads at once: each row catches up once."""
    count = 20_000
    table = sok.Variable(np.zeros((count, 4), np.float32))
    optimizer = sok.OptimizerWrapper(keras.optimizers.SGD(1.0, momentum=0.5), "lazy_global")
    everything = tf.range(count, dtype=tf.int64)
    optimizer.apply([tf.IndexedSlices(tf.ones([count, 4]), everything)], [table])
    for _ in range(3):
        optimizer.apply([tf.IndexedSlices(tf.zeros([0, 4]), everything[:0])], [table])

    @tf.function
    def read():
        return tf.stack([sok.lookup_sparse(table, tf.random.shuffle(everything), training=False) for _ in range(6)])

    np.testing.assert_allclose(read().numpy(), -1.875, rtol=1e-6)


def test_what_has_no_closed_form_is_refused():
    for optimizer in (keras.optimizers.Adam(), keras.optimizers.Adagrad(), keras.optimizers.Ftrl()):
        with pytest.raises(ValueError, match=r"no closed form for the steps of .* it works with SGD and RMSprop"):
            sok.OptimizerWrapper(optimizer, "lazy_global")
    for optimizer in (
        keras.optimizers.SGD(momentum=0.9, weight_decay=0.1),
        keras.optimizers.RMSprop(momentum=0.9, weight_decay=0.1),
    ):
        with pytest.raises(ValueError, match="no closed form for momentum with weight decay"):
            sok.OptimizerWrapper(optimizer, "lazy_global")
    with pytest.raises(ValueError, match="no closed form for the steps of Adam"):
        sok.OptimizerWrapper(keras.optimizers.SGD(), "lazy_global", per_table={"a": keras.optimizers.Adam()})


def test_decay_that_takes_all_of_a_row_is_refused():
    table = sok.Variable([[1.0]])
    optimizer = sok.OptimizerWrapper(keras.optimizers.SGD(2.0, weight_decay=0.5), "lazy_global")
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"learning rate 2 times weight decay 0\.5 must be below 1"
    ):
        optimizer.apply([tf.IndexedSlices(tf.ones([1, 1]), tf.constant([0]))], [table])
