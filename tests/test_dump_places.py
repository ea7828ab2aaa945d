# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Folders with other things than a dump in them, other processes at work there, and disks that are full."""

import contextlib
import fcntl
import os
import socket
import subprocess
import sys

import kinds
import numpy as np
import pytest
import tensorflow as tf
from signed_dumps import read, shard_of, variables_of, write

import sok
from sok.checkpoint import manifest, storage


def table_of(value, rows=50):
    table = sok.DynamicVariable(2, name="t")
    sok.assign(table, np.arange(rows), np.full((rows, 2), value, np.float32))
    return table


@pytest.fixture
def dump(tmp_path):
    """A folder with a dump of the table "t", all ones, and a variable."""
    sok.dump(tmp_path / "d", [table_of(1.0), tf.Variable([1.0, 2.0], name="w")])
    return tmp_path / "d"


def loaded(dump):
    table = sok.DynamicVariable(2, name="t")
    sok.load(dump, table, strict=False)
    return kinds.export_as_dict(table)


def assert_holds(dump, value, rows=50):
    found = loaded(dump)
    assert len(found) == rows
    assert all(np.all(row == value) for row in found.values())


def assert_refused(dump, match):
    """Loading fails so, and changes neither a table with rows nor an empty one, nor the variable."""
    for rows in (0, 3):
        table, weight = table_of(7.0, rows), tf.Variable([7.0, 8.0], name="w")
        with pytest.raises(ValueError, match=match):
            sok.load(dump, [table, weight])
        found = kinds.export_as_dict(table)
        assert len(found) == rows
        assert all(np.all(row == 7.0) for row in found.values())
        np.testing.assert_array_equal(weight, [7.0, 8.0])


def put(path, kind):
    """Something else in the place of a file."""
    path.unlink(missing_ok=True)
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a folder":
        path.mkdir()
    elif kind == "a device":
        path.symlink_to("/dev/zero")
    else:
        folder = os.open(path.parent, os.O_RDONLY)
        with socket.socket(socket.AF_UNIX) as named:
            named.bind(f"/proc/self/fd/{folder}/{path.name}")  # the whole path may be too long for it
        os.close(folder)


KINDS = ["a pipe", "a folder", "a device", "a socket"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("which", ["manifest", "shard", "variables"])
def test_what_is_no_file(dump, which, kind):
    path = {"manifest": dump / "manifest.json", "shard": shard_of(dump), "variables": variables_of(dump)}[which]
    put(path, kind)
    assert_refused(dump, f"{path} is {kind}, not a file: put the file of the dump back")
    if which == "manifest":
        before = sorted(dump.iterdir())
        with pytest.raises(ValueError, match=f"is {kind}, not a file"):
            sok.dump(dump, table_of(2.0))
        assert sorted(dump.iterdir()) == before


@pytest.mark.parametrize("kind", ["a pipe", "a socket", "a link"])
def test_what_lies_where_the_new_manifest_is_written(dump, tmp_path, kind):
    victim, path = tmp_path / "victim", dump / ".manifest.json.new"
    victim.write_text("somebody's")
    if kind == "a link":
        path.symlink_to(victim)
    else:
        put(path, kind)
    sok.dump(dump, table_of(2.0))
    assert_holds(dump, 2.0)
    assert victim.read_text() == "somebody's"


def test_a_manifest_that_leads_nowhere(dump, tmp_path):
    """Its shards are not taken for the remains of a dump that was cut off."""
    (dump / "manifest.json").rename(tmp_path / "away")
    (dump / "manifest.json").symlink_to(tmp_path / "gone")
    assert_refused(dump, "is a symbolic link that leads nowhere")
    with pytest.raises(ValueError, match="is a symbolic link that leads nowhere"):
        sok.dump(dump, table_of(2.0))
    (tmp_path / "away").rename(tmp_path / "gone")
    assert_holds(dump, 1.0)


@pytest.mark.parametrize("what", ["file", "nothing"])
def test_a_generation_that_is_gone(dump, what):
    generation = shard_of(dump).parent
    generation.rename(dump / "elsewhere")
    if what == "file":
        generation.touch()
    assert_refused(dump, "is missing: it was removed, or a newer dump has just taken this one's place")


def test_files_of_a_terabyte(dump):
    """Nothing is as large as a number in a manifest or a file says, before it has been compared."""
    os.truncate(variables_of(dump), 2**40)
    assert_refused(dump, "variables.safetensors has 1099511627776 bytes, the manifest says")
    data = read(dump)
    data["variables_shard"]["bytes"] = 2**40
    write(dump, data)
    assert_refused(dump, "variables.safetensors has 1099511627776 bytes for 1 variables of 8")
    rows = 2**40 // 16
    os.truncate(shard_of(dump), 2**40)
    data["variables_shard"]["bytes"] = 300
    data["tables"][0]["rows"] = rows
    data["tables"][0]["shards"][0] |= {"rows": rows, "bytes": 2**40}
    write(dump, data)
    assert_refused(dump, f"has rows of 1099511627776 bytes; a shard has at most {manifest.MOST_SHARD_BYTES}")


def test_a_large_variable_that_nobody_asked_for_takes_no_memory(dump):
    """Nor would there be any: it is larger than what the process may have."""
    data, size = read(dump), 1 << 30
    data["variables"].append({"group": "variables", "name": "large", "dtype": "uint8", "shape": [size]})
    data["variables_shard"]["bytes"] += size
    write(dump, data)
    os.truncate(variables_of(dump), data["variables_shard"]["bytes"])
    weight = tf.Variable([7.0, 8.0], name="w")
    code = (
        "import resource, sys, tensorflow as tf, sok\n"
        "weight = tf.Variable([7.0, 8.0], name='w')\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 29), -1))\n"
        "sok.load(sys.argv[1], weight, strict=False)\n"
    )
    done = run(code, dump)
    assert "variables.safetensors: its checksum does not fit" in done.stderr
    np.testing.assert_array_equal(weight, [7.0, 8.0])


def run(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False
    )


def test_a_disk_that_becomes_full(dump):
    """What was there stays, and what was written of the new one takes no room."""
    before = sorted(dump.rglob("*"))
    code = (
        "import resource, sys, numpy as np, sok\n"
        "table = sok.DynamicVariable(64, name='t')\n"
        "sok.assign(table, np.arange(10_000), np.ones((10_000, 64), np.float32))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, -1))\n"
        "for blocking in (True, False):\n"
        "    try:\n"
        "        result = sok.dump(sys.argv[1], table, blocking=blocking)\n"
        "        result.result()\n"
        "    except OSError as error:\n"
        "        print(blocking, error)\n"
    )
    done = run(code, dump)
    assert done.stdout.splitlines() == [f"{blocking} [Errno 27] File too large" for blocking in (True, False)], done
    assert sorted(dump.rglob("*")) == before
    assert_holds(dump, 1.0)


@contextlib.contextmanager
def lock(folder, kind):
    """What another process holds; to a lock of a file that was opened twice it is the same."""
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, kind)
    yield
    os.close(descriptor)


def test_another_process_that_dumps(dump):
    with lock(dump, fcntl.LOCK_EX):
        for blocking in (True, False):
            with pytest.raises(BlockingIOError, match="another process is writing a dump there"):
                sok.dump(dump, table_of(2.0), blocking=blocking)
        assert_holds(dump, 1.0)
    sok.dump(dump, table_of(2.0))
    assert_holds(dump, 2.0)
    assert len(list(dump.iterdir())) == 2


def test_a_dump_that_is_being_loaded_is_not_removed(dump):
    """Not by one that takes its place, but by the next."""
    old = shard_of(dump)
    with lock(old.parent, fcntl.LOCK_SH):
        sok.dump(dump, table_of(2.0))
        assert old.is_file()
        assert_holds(dump, 2.0)
    sok.dump(dump, table_of(3.0))
    assert_holds(dump, 3.0)
    assert len(list(dump.glob("data-*"))) == 1


def test_a_dump_in_the_middle_of_a_load(dump, monkeypatch):
    """The load reads its files twice, since the table has rows; what it has checked stays."""
    table, original = table_of(7.0, 3), storage.LocalStorage.check

    def check(self, name, size):
        original(self, name, size)
        monkeypatch.setattr(storage.LocalStorage, "check", original)
        sok.dump(dump, [table_of(2.0), tf.Variable([1.0, 2.0], name="w")])

    monkeypatch.setattr(storage.LocalStorage, "check", check)
    sok.load(dump, table, strict=False)
    assert all(np.all(row == 1.0) for row in kinds.export_as_dict(table).values())
    assert_holds(dump, 2.0)


def test_folders_without_locks(dump, monkeypatch):
    def refuse(descriptor, operation):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    sok.dump(dump, table_of(2.0))
    assert_holds(dump, 2.0)


def test_a_manifest_that_would_be_too_large_to_be_read(dump, monkeypatch):
    monkeypatch.setattr(manifest, "MOST_BYTES", (dump / "manifest.json").stat().st_size)
    tables = {f"t{i}": table_of(2.0) for i in range(3)}
    with pytest.raises(ValueError, match=r"manifest.json would have \d+ bytes, at most \d+ are read"):
        sok.dump(dump, tables)
    assert_holds(dump, 1.0)
    assert len(list(dump.glob("data-*"))) == 1
