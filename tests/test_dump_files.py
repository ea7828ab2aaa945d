# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""How bytes of a dump reach files and come back: direct and plain files, the format, other file systems."""

import errno
import os

import kinds
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

import sok
from sok.checkpoint import files, manifest, shards, storage, writer

SIZES = [0, 1, files.PAGE - 1, files.PAGE, files.PAGE + 1, 3 * files.PAGE + 5]


def random_bytes(size, offset=0):
    """So many bytes, which begin at a page, or `offset` bytes after one."""
    view = files.aligned(size + offset)[offset : offset + size]
    view[:] = np.random.default_rng(size).bytes(size)
    return view


def read_back(path, size, direct):
    buffer = files.aligned(size)
    got = files.read(path, buffer, direct)
    return bytes(buffer[:got])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("offset", [0, 8])
@pytest.mark.parametrize("direct", [False, True])
def test_files_of_every_size(tmp_path, size, offset, direct):
    path = tmp_path / "new" / "file"
    data = random_bytes(size, offset)
    files.write(path, data)
    assert path.read_bytes() == data
    # One byte more than there should be shows.
    assert read_back(path, size + 1, direct)[: size + 1] == bytes(data)
    files.write(path, data[: size // 2])
    assert path.stat().st_size == size // 2


def test_a_file_system_without_direct_files(tmp_path, monkeypatch):
    opened, original = [], os.open

    def refuse(path, flags, *args, **kwargs):
        opened.append(flags)
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return original(path, flags, *args, **kwargs)

    monkeypatch.setattr(files.os, "open", refuse)
    data = random_bytes(2 * files.PAGE + 3)
    files.write(tmp_path / "f", data)
    assert read_back(tmp_path / "f", len(data), direct=True) == bytes(data)
    assert sum(bool(flags & os.O_DIRECT) for flags in opened) == 2


def test_transfers_that_are_cut_short(tmp_path, monkeypatch):
    """A signal or a nearly full disk ends a write in the middle of a page, where the next cannot be direct."""
    write, readv = os.write, os.readv

    def write_some(descriptor, data):
        return write(descriptor, data[:1000])

    def read_some(descriptor, buffers):
        return readv(descriptor, [buffers[0][:1000]])

    data = random_bytes(2 * files.PAGE)
    monkeypatch.setattr(files.os, "write", write_some)
    monkeypatch.setattr(files.os, "readv", read_some)
    files.write(tmp_path / "f", data)
    assert read_back(tmp_path / "f", len(data), direct=True) == bytes(data)


def test_a_disk_that_is_full(tmp_path, monkeypatch):
    def full(descriptor, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        files.write(tmp_path / "f", random_bytes(files.PAGE))


@pytest.mark.parametrize("count", [0, 1, 5])
def test_the_safetensors_library_reads_what_is_written(count):
    rng = np.random.default_rng(count)
    dtypes = [name for name in manifest.DTYPES if name != "bfloat16"]
    arrays = {name: rng.integers(0, 2, (count, 3)).astype(name) for name in dtypes}
    data = shards.encode(arrays, {name: name for name in dtypes})
    for found in (safetensors.numpy.load(bytes(data)), shards.decode(
        data, "f", {name: (name, (count, 3)) for name in dtypes}
    )):  # fmt: skip
        assert set(found) == set(dtypes)
        for name in dtypes:
            assert found[name].dtype == arrays[name].dtype
            np.testing.assert_array_equal(found[name], arrays[name])


def test_values_are_written_in_the_type_of_the_rows():
    values = np.float32([[1.0, 2.0**-9, 65504.0]])
    data = shards.encode({"a": values, "b": values}, {"a": "bfloat16", "b": "float16"})
    found = shards.decode(data, "f", {"a": ("bfloat16", (1, 3)), "b": ("float16", (1, 3))})
    for name in ("a", "b"):
        expected = tf.cast(values, {"a": tf.bfloat16, "b": tf.float16}[name])
        np.testing.assert_array_equal(found[name].astype(np.float32), tf.cast(expected, tf.float32))


def test_shards_use_the_buffers_again():
    buffer = files.aligned(1000)
    arrays = {"keys": np.arange(20), "values": np.ones((20, 2), np.float32)}
    dtypes = {"keys": "int64", "values": "float32"}
    data = shards.encode(arrays, dtypes, buffer)
    assert np.shares_memory(np.frombuffer(data, np.uint8), np.frombuffer(buffer, np.uint8))
    assert not np.shares_memory(
        np.frombuffer(shards.encode(arrays, dtypes, buffer[:100]), np.uint8), np.frombuffer(buffer, np.uint8)
    )


def table_of(value):
    table = sok.DynamicVariable(2, name="t")
    sok.assign(table, np.arange(10), np.full((10, 2), value, np.float32))
    return table


def loaded(url):
    table = sok.DynamicVariable(2, name="t")
    sok.load(url, table)
    return kinds.export_as_dict(table)


@pytest.mark.parametrize("scheme", ["local://", "memory://"])
def test_other_file_systems(tmp_path, scheme):
    url = f"{scheme}{tmp_path}/deep/dump"
    with pytest.raises(FileNotFoundError, match="holds no dump"):
        loaded(url)
    for value in (1.0, 2.0):
        sok.dump(url, table_of(value))
        assert all(np.all(row == value) for row in loaded(url).values())
        assert len(storage.open_storage(url).folders()) == 1


def test_a_manifest_that_is_half_written_where_files_are_renamed(tmp_path, monkeypatch):
    """A crash in that moment leaves the old one."""
    from fsspec.implementations.local import LocalFileSystem

    url = f"local://{tmp_path}/dump"
    sok.dump(url, table_of(1.0))
    whole = LocalFileSystem.pipe_file

    def half(self, path, value, **kwargs):
        if "manifest.json" not in path:
            return whole(self, path, value, **kwargs)
        whole(self, path, value[: len(value) // 2], **kwargs)
        raise OSError("cut off")

    with monkeypatch.context() as patch:
        patch.setattr(LocalFileSystem, "pipe_file", half)
        with pytest.raises(OSError, match=r"cannot write manifest\.json"):
            sok.dump(url, table_of(2.0))
    assert all(np.all(row == 1.0) for row in loaded(url).values())
    sok.dump(url, table_of(3.0))
    assert all(np.all(row == 3.0) for row in loaded(url).values())


def test_old_shards_that_cannot_be_removed(tmp_path, monkeypatch):
    """The new dump is there: only space is lost, until a later one removes them."""
    sok.dump(tmp_path, table_of(1.0))

    def fail(self, folder):
        raise PermissionError("not yours")

    with monkeypatch.context() as patch:
        patch.setattr(storage.LocalStorage, "remove", fail)
        with pytest.warns(UserWarning, match="old shards are still there: not yours"):
            assert sok.dump(tmp_path, table_of(2.0)).rows == 10
    assert all(np.all(row == 2.0) for row in loaded(tmp_path).values())
    assert len(list(tmp_path.glob("data-*"))) == 2
    sok.dump(tmp_path, table_of(3.0))
    assert len(list(tmp_path.glob("data-*"))) == 1


def test_variables_that_a_dump_cannot_hold(tmp_path):
    for value in (tf.constant("text"), tf.constant(1j)):
        with pytest.raises(TypeError, match=r"the variable 'odd' holds .*which a dump cannot hold"):
            sok.dump(tmp_path, tf.Variable(value, name="odd"))
    assert writer._locks[os.path.realpath(tmp_path)].acquire(timeout=1)
    writer._locks[os.path.realpath(tmp_path)].release()
