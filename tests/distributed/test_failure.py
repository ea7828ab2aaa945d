# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Ranks that vanish, sleep or leave: the others get an error that says who is missing, not a hang."""

import os
import pathlib
import signal
import time

import horovod.tensorflow as hvd
import keras
import launch
import pytest
import tensorflow as tf

import sok

# Seconds that ranks wait for each other; start-up and tracing may take one longer than the other.
LIMIT = 15
# What a test allows beyond it, on a machine that does other things too.
PATIENCE = 60


def train_until_error(directory, sleeper=None):
    """Trains until something goes wrong; the error's text.

    A file "training-RANK" says that a rank has come to step 5, where one may fall asleep, and "failed"
    that one has met an error, which ends that sleep.
    """
    failed = pathlib.Path(directory, "failed")
    rank = sok.init().rank
    tables = [sok.DynamicVariable(4), sok.Variable(shape=(100, 3), mode="localized:0")]
    optimizer = sok.OptimizerWrapper(keras.optimizers.Adam(0.1))
    ids = tf.random.uniform([64, 3], 0, 100, tf.int64)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            outputs = sok.lookup_sparse(tables, [ids, ids], combiners=["mean", "sum"])
            loss = tf.add_n([tf.reduce_sum(x) for x in outputs])
        optimizer.apply_gradients(zip(tape.gradient(loss, tables), tables))

    try:
        for number in range(10**6):
            step()
            if number == 5:
                pathlib.Path(directory, f"training-{rank}").touch()
                while rank == sleeper and not failed.exists():
                    time.sleep(0.1)
    except tf.errors.OpError as error:
        failed.touch()
        return str(error)


@pytest.fixture
def job(request):
    ranks = launch.Ranks(request.param, {"SOK_COMM_TIMEOUT": str(LIMIT)})
    yield ranks
    ranks.kill()
    ranks.close()


def wait_until_training(ranks, directory):
    deadline = time.monotonic() + 120
    while len(os.listdir(directory)) < ranks.size:
        assert time.monotonic() < deadline, ranks.output(0)
        time.sleep(0.05)


@pytest.mark.parametrize("job", [3], indirect=True)
def test_killed_rank(job, tmp_path):
    job.start(train_until_error, str(tmp_path))
    wait_until_training(job, tmp_path)
    job.processes[1].send_signal(signal.SIGKILL)
    results = job.results(timeout=LIMIT + PATIENCE)
    assert results[1] == (None, None)
    for rank in (0, 2):
        text, error = results[rank]
        assert error is None, error
        assert "collective 'sok/" in text
        assert "failed in its step" in text
        assert "missing ranks: rank 1: its process has ended" in text, text
        assert "rank 0:" not in text
        assert "rank 2:" not in text


@pytest.mark.parametrize("job", [2], indirect=True)
def test_rank_that_does_not_come(job, tmp_path):
    job.start(train_until_error, str(tmp_path), sleeper=1)
    results = job.results(timeout=LIMIT + 2 * PATIENCE)
    text, error = results[0]
    assert error is None, error
    assert "collective 'sok/exchange_counts" in text
    assert "step 7" in text
    assert f"within {LIMIT} s (SOK_COMM_TIMEOUT)" in text or "Horovod has been shut down" in text
    assert "missing ranks: rank 1: in no collective" in text, text
    # The one that overslept comes to a job that has ended.
    assert "collective 'sok/" in results[1][0]


@pytest.mark.parametrize("job", [2], indirect=True)
def test_stopped_rank(job, tmp_path):
    job.start(train_until_error, str(tmp_path))
    wait_until_training(job, tmp_path)
    job.processes[1].send_signal(signal.SIGSTOP)
    # Rank 1 cannot answer: only rank 0's pipe becomes ready.
    assert job._pipes[0].poll(LIMIT + PATIENCE)
    text, error = job._pipes[0].recv()
    assert error is None, error
    assert f"within {LIMIT} s (SOK_COMM_TIMEOUT)" in text
    assert "missing ranks: rank 1: it does not answer" in text, text


def join_after_lookup():
    """The text of the error of `hvd.join`; before any lookup it is as ever."""
    sok.init()
    hvd.join()
    sok.lookup_sparse(sok.DynamicVariable(2), tf.constant([1]))
    try:
        hvd.join()
    except RuntimeError as error:
        return str(error)


@pytest.mark.parametrize("job", [2], indirect=True)
def test_join_is_refused(job):
    for text in job.run(join_after_lookup):
        assert "hvd.join is not supported with table lookups" in text
        assert "same number of steps" in text
