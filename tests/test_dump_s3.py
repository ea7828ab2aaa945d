# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Dumps in an object store: a real server process on this machine, which can go away."""

import contextlib
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import kinds
import numpy as np
import pytest
import tensorflow as tf

import sok
from sok.checkpoint import shards
from sok.checkpoint.storage import open_storage

pytest.importorskip("s3fs")
pytest.importorskip("moto")


class Wire:
    """A way to the server that can be cut and mended."""

    def __init__(self, port):
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open = set()
        self.is_cut = False
        self.requests = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            client, _ = self._listener.accept()
            if self.is_cut:
                client.close()
                continue
            server = socket.create_connection(("127.0.0.1", self._target))
            self._open |= {client, server}
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._copy, args=(source, sink, source is client), daemon=True).start()

    def _copy(self, source, sink, counts):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self.requests += counts and data[:4] in (b"PUT ", b"GET ", b"POST")
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self):
        self.is_cut = True
        for end in list(self._open):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def mend(self):
        self.is_cut = False


@pytest.fixture(scope="module")
def server():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/moto-api/", timeout=5).close()
            break
        except OSError:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
    yield port
    process.kill()
    process.wait()


@pytest.fixture
def wire(server):
    return Wire(server)


def options(port):
    return {
        "key": "test",
        "secret": "test",
        "client_kwargs": {"endpoint_url": f"http://127.0.0.1:{port}"},
        "config_kwargs": {"retries": {"max_attempts": 0}, "connect_timeout": 5, "read_timeout": 20},
    }


@pytest.fixture
def bucket(server, request):
    import s3fs

    name = f"bucket-{abs(hash(request.node.name))}"
    s3fs.S3FileSystem(**options(server)).mkdir(name)
    return f"s3://{name}"


def table_of(value, rows=2000):
    table = sok.DynamicVariable(4, name="t")
    sok.assign(table, np.arange(rows), np.full((rows, 4), value, np.float32))
    return table


def assert_loads(url, port, value, rows=2000):
    table = sok.DynamicVariable(4, name="t")
    sok.load(url, table, storage_options=options(port))
    found = kinds.export_as_dict(table)
    assert len(found) == rows
    assert all(np.all(row == value) for row in found.values())


def test_there_and_back(bucket, server, monkeypatch):
    monkeypatch.setattr(shards, "SHARD_BYTES", 5000)
    url = f"{bucket}/models/a"
    with pytest.raises(FileNotFoundError, match=f"{url} holds no dump"):
        sok.load(url, table_of(0.0), storage_options=options(server))
    for value in (1.0, 2.0):
        weight = tf.Variable([value], name="w")
        sok.dump(url, [table_of(value), weight], storage_options=options(server))
        weight.assign([0.0])
        sok.load(url, [sok.DynamicVariable(4, name="t"), weight], storage_options=options(server))
        np.testing.assert_array_equal(weight, [value])
        # Of the dump before nothing is left.
        assert len(open_storage(url, options(server)).folders()) == 1


def test_damage_is_found(bucket, server):
    url = f"{bucket}/b"
    sok.dump(url, table_of(1.0), storage_options=options(server))
    storage = open_storage(url, options(server))
    (folder,) = storage.folders()
    (name,) = storage._system.ls(storage._path(folder), detail=False)
    content = bytearray(storage._system.cat_file(name))
    content[-1] ^= 1
    storage._system.pipe_file(name, bytes(content))
    other = table_of(7.0, 3)
    with pytest.raises(ValueError, match="its checksum does not fit"):
        sok.load(url, other, storage_options=options(server))
    storage._system.pipe_file(name, bytes(content[:-5]))
    with pytest.raises(ValueError, match="it was cut or changed"):
        sok.load(url, other, storage_options=options(server))
    storage._system.rm(name)
    with pytest.raises(ValueError, match="is missing"):
        sok.load(url, other, storage_options=options(server))
    assert other.size == [3, 4]


@pytest.mark.slow
def test_a_server_that_goes_away(bucket, server, wire, monkeypatch):
    """In the middle of a dump and of a load, at several moments: an error that names the place; the dump
    before it stays, and so does the table."""
    monkeypatch.setattr(shards, "SHARD_BYTES", 5000)
    url = f"{bucket}/c"
    sok.dump(url, table_of(1.0), storage_options=options(server))
    for after in (1, 4, 9):
        wire.mend()
        first = wire.requests
        handle = sok.dump(url, table_of(2.0), blocking=False, storage_options=options(wire.port))
        while wire.requests < first + after and not handle.done():
            time.sleep(0.001)
        wire.cut()
        with pytest.raises(OSError, match=f"{url}: cannot "):
            handle.result(120)
        assert_loads(url, server, 1.0)
    for after in (1, 4, 9):
        wire.mend()
        first = wire.requests

        def cut_later(first=first, after=after):
            while wire.requests < first + after:
                time.sleep(0.001)
            wire.cut()

        cutter = threading.Thread(target=cut_later)
        cutter.start()
        table = table_of(5.0, 10)
        with pytest.raises(OSError, match=f"{url}: cannot "):
            sok.load(url, table, storage_options=options(wire.port))
        cutter.join()
        assert table.size == [10, 4]
    wire.mend()
    assert_loads(url, wire.port, 1.0)


@pytest.mark.parametrize("call", [sok.load, sok.dump])
def test_a_web_server_that_is_not_there(call):
    """It is not taken for one without a dump."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}/dump"
    with pytest.raises((OSError, RuntimeError), match=r"cannot read manifest\.json: ClientConnector"):
        call(url, table_of(1.0, rows=3))
