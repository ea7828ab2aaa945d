# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Dumps and loads beside each other and beside training, in threads and processes."""

import contextlib
import subprocess
import sys
import threading

import keras
import kinds
import numpy as np
import pytest
import tensorflow as tf

import sok
from sok.checkpoint import locks

ROWS = 200


def table_of(value):
    table = sok.DynamicVariable(8, name="t", initializer="ones")
    sok.assign(table, np.arange(ROWS), np.full((ROWS, 8), value, np.float32))
    return table


@contextlib.contextmanager
def beside(*functions):
    """Calls functions of a number in threads of their own, again and again; what they raise is raised here."""
    ended, errors = threading.Event(), []

    def work(function):
        number = 0
        while not ended.is_set():
            try:
                function(number)
            except Exception as error:
                errors.append(error)
                return
            number += 1

    threads = [threading.Thread(target=work, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]


def trainer(table):
    """Trains rows of the table and others without changing them."""
    optimizer = sok.OptimizerWrapper(keras.optimizers.SGD(0.0))

    def step(number):
        ids = tf.constant(np.random.default_rng(number).integers(0, 5 * ROWS, (64, 1)))
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(sok.lookup_sparse(table, ids, combiners="sum"))
        optimizer.apply_gradients([(tape.gradient(loss, table), table)])

    return step


def test_a_load_beside_training(tmp_path):
    """The rows of the dump are there, whatever was inserted meanwhile."""
    sok.dump(tmp_path, table_of(3.0))
    table = table_of(1.0)
    with beside(trainer(table)):
        for _ in range(20):
            assert sok.load(tmp_path, table).rows == {"t": ROWS}
            found = kinds.export_as_dict(table)
            assert all(np.all(found[key] == 3.0) for key in range(ROWS))
    assert all(np.all(row == (3.0 if key < ROWS else 1.0)) for key, row in kinds.export_as_dict(table).items())


@pytest.mark.parametrize("blocking", [True, False])
def test_dumps_beside_training_and_erasing(tmp_path, blocking):
    """Each holds as many rows as it says, once."""
    table = table_of(1.0)
    with beside(trainer(table), lambda number: sok.erase(table, tf.range(number % ROWS, ROWS, dtype=tf.int64))):
        for _ in range(20):
            result = sok.dump(tmp_path, table, blocking=blocking)
            rows = (result if blocking else result.result()).rows
            loaded = sok.DynamicVariable(8, name="t")
            assert sok.load(tmp_path, loaded).rows == {"t": rows}
            assert loaded.size == [rows, 8]
            assert all(np.all(row == 1.0) for row in kinds.export_as_dict(loaded).values())


def test_dumps_and_loads_of_one_folder(tmp_path):
    """What is loaded is one dump, and an empty table and one with rows alike get all of it."""
    sok.dump(tmp_path, table_of(1.0))

    def writer(number):
        result = sok.dump(tmp_path, table_of(number), blocking=bool(number % 2))
        if not number % 2:
            result.result()

    def reader(number):
        table = sok.DynamicVariable(8, name="t")
        if number % 2:
            sok.assign(table, [9999], np.ones((1, 8), np.float32))
        try:
            sok.load(tmp_path, table)
        except ValueError as error:
            # Between the manifest and its files another dump took its place.
            if "is missing: it was removed, or a newer dump" not in str(error):
                raise
            assert table.size[0] == number % 2
            return
        values = np.stack(list(kinds.export_as_dict(table).values()))
        assert values.shape == (ROWS, 8)
        assert len(np.unique(values)) == 1

    with beside(writer, writer, reader, reader):
        for _ in range(20):
            reader(1)
    reader(0)
    # What was being loaded when another took its place goes with the next one.
    sok.dump(tmp_path, table_of(1.0))
    assert len(list(tmp_path.glob("data-*"))) == 1


def test_a_dump_that_is_being_removed(tmp_path):
    """Its files may be there when it is opened, and gone when they are read."""
    sok.dump(tmp_path, table_of(1.0))
    table = table_of(2.0)
    (folder,) = tmp_path.glob("data-*")
    with locks.held(folder), pytest.raises(ValueError, match=f"{folder.name} is missing: it was removed, or a newer"):
        sok.load(tmp_path, table)
    assert all(np.all(row == 2.0) for row in kinds.export_as_dict(table).values())
    assert sok.load(tmp_path, table).rows == {"t": ROWS}


PROGRAM = """
import sys
import time
import numpy as np
import sok

table = sok.DynamicVariable(8, name="t")
number = 0
while number < 10:
    sok.assign(table, np.arange(200), np.full((200, 8), number, np.float32))
    try:
        sok.dump(sys.argv[1], table)
        number += 1
    except BlockingIOError as error:
        assert "another process is writing a dump there" in str(error)
        time.sleep(0.02)
"""


@pytest.mark.slow
def test_processes_that_dump_to_one_folder(tmp_path):
    """Neither removes what the other writes: at every moment there is a whole dump."""
    sok.dump(tmp_path, table_of(1.0))
    processes = [
        subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)], stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    loads = 0
    while loads == 0 or any(process.poll() is None for process in processes):
        table = sok.DynamicVariable(8, name="t")
        with contextlib.suppress(ValueError):  # another took its place meanwhile
            sok.load(tmp_path, table)
            values = np.unique(np.stack(list(kinds.export_as_dict(table).values())))
            assert (len(values), table.size[0]) == (1, ROWS)
            loads += 1
    for process in processes:
        assert process.wait() == 0, process.stderr.read()
        process.stderr.close()
    table = sok.DynamicVariable(8, name="t")
    assert sok.load(tmp_path, table).rows == {"t": ROWS}
    sok.dump(tmp_path, table)  # and removes what was being loaded when the last one took its place
    assert len(list(tmp_path.glob("data-*"))) == 1
