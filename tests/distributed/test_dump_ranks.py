# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Dumps of N ranks on M ranks: the same rows, states and step, and the same training afterwards."""

import json
import time

import keras
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf
from rows_of_ranks import assert_equal_tables

import sok
from sok.checkpoint import files, manifest, parts, shards, writer

OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.1),
    "momentum": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "adagrad": lambda: keras.optimizers.Adagrad(0.1),
    "rowwise_adagrad": lambda: sok.optimizers.RowWiseAdagrad(0.1),
    "rmsprop": lambda: keras.optimizers.RMSprop(0.01, momentum=0.5),
    "adam": lambda: keras.optimizers.Adam(0.01),
    "amsgrad": lambda: keras.optimizers.Adam(0.01, amsgrad=True),
    "adamax": lambda: keras.optimizers.Adamax(0.01),
    "adadelta": lambda: keras.optimizers.Adadelta(0.5),
    "ftrl": lambda: keras.optimizers.Ftrl(0.1),
}
BEFORE, AFTER = 3, 5
BATCH = 12  # on all ranks together


class Trainer:
    """Tables of every placement and a dense weight. On one rank and on several it computes the same."""

    def __init__(self, optimizer, seed=1):
        sok.init()
        common = {"initializer": "normal", "seed": seed}
        self.tables = [
            sok.DynamicVariable(3, name="hash", **common),
            sok.Variable(shape=(11, 2), name="static", **common),
            sok.DynamicVariable(2, name="one_rank", mode=f"localized:{sok.size() - 1}", **common),
            sok.Variable(shape=(7, 2), name="everywhere", mode="data_parallel", **common),
            sok.DynamicVariable(4, name="never_used", **common),
        ]
        self.dense = tf.Variable(np.linspace(-1, 1, 9, dtype=np.float32)[:, None], name="dense")
        self.optimizer = sok.OptimizerWrapper(OPTIMIZERS[optimizer]())
        self.variables = [*self.tables, self.dense]

    def step(self, number):
        ids = np.random.default_rng(number).integers(-50, 50, (BATCH, 2))
        mine = ids[sok.rank() * BATCH // sok.size() : (sok.rank() + 1) * BATCH // sok.size()]
        used = self.tables[:4]
        with tf.GradientTape() as tape:
            rows = sok.lookup_sparse(used, [mine, mine % 11, mine, mine % 7], combiners="sum")
            joined = tf.concat([tf.cast(x, tf.float32) for x in rows], 1)
            loss = tf.reduce_mean(tf.square(tf.tanh(joined @ self.dense) - 0.5))
        trained = [*used, self.dense]
        self.optimizer.apply_gradients(zip(tape.gradient(loss, trained), trained, strict=True))

    def contents(self):
        """What this rank keeps: of each table its planes by id; the dense weight; the step."""
        tables = []
        for table in self.tables:
            found = sok.check_out(table)
            ids = found.pop("ids").tolist()
            tables.append({plane: dict(zip(ids, values, strict=True)) for plane, values in found.items()})
        return tables, self.dense.numpy(), int(self.optimizer.iterations)


def train_and_dump(folder, optimizer, blocking=True):
    trainer = Trainer(optimizer)
    for i in range(BEFORE):
        trainer.step(i)
    here = trainer.contents()
    done = sok.dump(folder, trainer.variables, trainer.optimizer, blocking=blocking)
    if not blocking:
        # Training goes on, with collectives of its own.
        for i in range(100, 105):
            trainer.step(i)
        done.result()
    return here


def load_and_train(folder, optimizer):
    trainer = Trainer(optimizer, seed=17)
    trainer.step(50)  # something that the load has to replace
    result = sok.load(folder, trainer.variables, trainer.optimizer)
    assert result.step == BEFORE
    loaded = trainer.contents()
    for i in range(BEFORE, BEFORE + AFTER):
        trainer.step(i)
    return loaded, trainer.contents()


def assert_equal(actual, expected, **tolerance):
    assert_equal_tables([rank[0] for rank in actual], [rank[0] for rank in expected], **tolerance)
    for (_, dense, step), (_, dense_expected, step_expected) in zip(actual, expected[:1] * len(actual), strict=True):
        np.testing.assert_allclose(dense, dense_expected, **tolerance)
        assert step == step_expected


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_from_n_ranks_to_m_ranks(ranks_of, tmp_path, optimizer):
    uninterrupted = {}
    for n in (1, 2, 3):
        folder = str(tmp_path / str(n))
        dumped = ranks_of(n).run(train_and_dump, folder, optimizer)
        for m in (1, 2, 3):
            loaded, after = zip(*ranks_of(m).run(load_and_train, folder, optimizer), strict=True)
            assert_equal(loaded, dumped, rtol=0, atol=0)
            # A run that was not interrupted, on the ranks that dumped.
            if n not in uninterrupted:
                uninterrupted[n] = ranks_of(n).run(train_on, optimizer)
            # Other ranks add in another order, and some rules divide by small numbers.
            near = {"rtol": 1e-5, "atol": 1e-6} if n == m else {"rtol": 1e-2, "atol": 5e-3}
            assert_equal(after, uninterrupted[n], **near)


def train_on(optimizer):
    trainer = Trainer(optimizer)
    for i in range(BEFORE + AFTER):
        trainer.step(i)
    return trainer.contents()


def test_dump_beside_training(ranks, tmp_path):
    folder = str(tmp_path / "d")
    dumped = ranks.run(train_and_dump, folder, "adam", blocking=False)
    loaded, _ = zip(*ranks.run(load_and_train, folder, "adam"), strict=True)
    assert_equal(loaded, dumped, rtol=0, atol=0)


def test_every_rank_writes_its_own_shards(ranks, tmp_path):
    folder = tmp_path / "d"
    ranks.run(train_and_dump, str(folder), "adam")
    held = json.loads((folder / "manifest.json").read_text())
    writers = {table["name"]: sorted(shard["rank"] for shard in table["shards"]) for table in held["tables"]}
    everyone = list(range(ranks.size))
    assert writers == {
        "hash": everyone,
        "static": everyone,
        "one_rank": [ranks.size - 1],
        "everywhere": everyone,
        "never_used": [],
    }


def load_error(folder, change=None):
    trainer = Trainer("adam", seed=4)
    trainer.step(50)
    before = trainer.contents()
    try:
        sok.load(folder, trainer.variables[: None if change is None else change], trainer.optimizer)
    except Exception as error:
        return f"{type(error).__name__}: {error}", before, trainer.contents()
    return "", before, trainer.contents()


def test_damage_that_one_rank_finds_stops_all(ranks, tmp_path):
    folder = tmp_path / "d"
    ranks.run(train_and_dump, str(folder), "adam")
    path = next(folder.glob("data-*/*hash*-00001-*.safetensors"))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    for text, before, after in ranks.run(load_error, str(folder)):
        assert f"{path.name}: its checksum does not fit" in text
        assert_equal([after], [before], rtol=0, atol=0)


def load_over_rows(folder):
    """What loading the table "t" over others says, and whether they are as before."""
    table = sok.DynamicVariable(2, name="t")
    sok.assign(table, np.arange(20), np.ones((20, 2)))
    before = sok.check_out(table)
    try:
        sok.load(folder, table)
    except ValueError as error:
        after = sok.check_out(table)
        return str(error), all(np.array_equal(before[name], after[name]) for name in before)
    return "", False


def test_a_key_in_two_files_that_two_ranks_check(ranks, tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "SHARD_BYTES", 1000)
    table = sok.DynamicVariable(2, name="t")
    sok.lookup_sparse(table, tf.range(300)[:, None])
    sok.dump(tmp_path, table)
    held = json.loads((tmp_path / "manifest.json").read_text())
    first, second = (tmp_path / held["generation"] / shard["file"] for shard in held["tables"][0]["shards"][:2])
    arrays = safetensors.numpy.load_file(second)
    arrays["keys"][5] = key = safetensors.numpy.load_file(first)["keys"][3]
    content = safetensors.numpy.save(arrays)
    second.write_bytes(content)
    held["tables"][0]["shards"][1] |= {"bytes": len(content), "checksum": manifest.checksum(content)}
    body = {name: value for name, value in held.items() if name != "checksum"}
    signed = {**body, "checksum": manifest.checksum(manifest._canonical(body))}
    (tmp_path / "manifest.json").write_text(json.dumps(signed))
    for text, is_unchanged in ranks.run(load_over_rows, str(tmp_path)):
        assert f"the key {key} in 2 files, {tmp_path}: {first.name} and {tmp_path}: {second.name}" in text
        assert is_unchanged


def failing_dump(folder, rank):
    """A rank whose disk is full; what every rank gets."""
    trainer = Trainer("adam")
    trainer.step(0)
    if sok.rank() == rank:
        original = shards.encode

        def fail(*_):
            raise OSError(28, "No space left on device")

        shards.encode = fail
    try:
        sok.dump(folder, trainer.variables, trainer.optimizer)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        if sok.rank() == rank:
            shards.encode = original
    return ""


def dump_to_a_full_disk(folder):
    """A rank that can write nothing any more, not even that it has failed."""
    trainer = Trainer("sgd")
    trainer.step(0)
    write, timeout = files.write, parts.timeout_seconds

    def full(path, data):
        raise OSError(28, "No space left on device")

    if sok.rank() == 1:
        files.write = full
    parts.timeout_seconds = lambda: 3.0
    try:
        sok.dump(folder, trainer.variables)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        files.write, parts.timeout_seconds = write, timeout
    return ""


def test_a_rank_that_cannot_even_say_that_it_failed(ranks, tmp_path):
    texts = ranks.run(dump_to_a_full_disk, str(tmp_path / "d"))
    assert texts[1] == "OSError: [Errno 28] No space left on device"
    assert "rank 1 has written nothing for 3 s" in texts[0]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_cannot_write_fails_the_dump_on_all(ranks, tmp_path, rank):
    folder = str(tmp_path / "d")
    dumped = ranks.run(train_and_dump, folder, "adam")
    for text in ranks.run(failing_dump, folder, rank):
        assert "No space left on device" in text
    loaded, _ = zip(*ranks.run(load_and_train, folder, "adam"), strict=True)
    assert_equal(loaded, dumped, rtol=0, atol=0)


def fail_and_dump_again(folder):
    """Rank 0 fails and tries again at once; the others are slow to look what has become of the first dump."""
    trainer = Trainer("sgd")
    trainer.step(0)
    wait, finish = parts.await_outcome, writer._Dump._finish

    def wait_later(*args):
        time.sleep(1.0)
        wait(*args)

    def fail(self, *args):
        raise OSError(28, "No space left on device")

    parts.await_outcome, writer._Dump._finish = wait_later, fail
    try:
        sok.dump(folder, trainer.variables, trainer.optimizer)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
    finally:
        parts.await_outcome, writer._Dump._finish = wait, finish
    start = time.monotonic()
    sok.dump(folder, trainer.variables, trainer.optimizer)
    return text, time.monotonic() - start, trainer.contents()


def test_a_dump_right_after_one_that_failed(ranks, tmp_path):
    """The others have heard of the failure before the remains of the first are removed."""
    folder = str(tmp_path / "d")
    results = ranks.run(fail_and_dump_again, folder)
    for text, seconds, _ in results:
        assert "No space left on device" in text
        assert seconds < 60  # of the 120 after which a rank gives up
    loaded = ranks.run(load_only, folder)
    assert_equal(loaded, [contents for _, _, contents in results], rtol=0, atol=0)
    assert len(list((tmp_path / "d").glob("data-*"))) == 1


def load_only(folder):
    trainer = Trainer("sgd", seed=9)
    sok.load(folder, trainer.variables, trainer.optimizer)
    return trainer.contents()


def no_snapshot(folder, rank):
    """A rank that has no memory for a snapshot."""
    trainer = Trainer("sgd")
    trainer.step(0)
    original = writer.TableSnapshot

    def fail(*_, **__):
        raise MemoryError("no memory for a copy")

    if sok.rank() == rank:
        writer.TableSnapshot = fail
    try:
        sok.dump(folder, trainer.variables, blocking=False)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        writer.TableSnapshot = original
    return ""


def test_a_rank_without_memory_stops_the_call_on_all(ranks, tmp_path):
    texts = ranks.run(no_snapshot, str(tmp_path / "d"), 1)
    assert texts[1] == "MemoryError: no memory for a copy"
    assert texts[0] == "RuntimeError: rank 1: MemoryError: no memory for a copy"
