# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Who is missing when a collective fails: every rank can be asked what it is doing.

Each rank answers on a TCP port, from a thread of its own, so that it answers also while its main thread
is busy. Nobody asks before something has gone wrong.
"""

import concurrent.futures
import ctypes
import json
import os
import socket
import socketserver
import threading

import numpy as np
import tensorflow as tf

from sok import _native

# Seconds that a rank has to answer.
_PATIENCE = 3.0
_ADDRESS_BYTES = 64
_ENDED = "its process has ended"
_SILENT = "it does not answer: stopped, or its host is down"


def _own_address() -> str:
    """This host's address as the other ranks reach it."""
    server = os.environ.get("HOROVOD_GLOO_RENDEZVOUS_ADDR")
    if server is None:
        return socket.gethostbyname(socket.gethostname())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Sends nothing: it only chooses the interface.
        probe.connect((server, 9))
        return probe.getsockname()[0]


class _Answer(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall(json.dumps(_native.call_json("sok_collective_now")).encode())


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """Somebody who does not wait for the answer is no error here."""


def _ask(address: tuple[str, int]) -> dict | str:
    """What a rank does now, or why it cannot say."""
    try:
        with socket.create_connection(address, _PATIENCE) as connection:
            connection.settimeout(_PATIENCE)
            text = b""
            while part := connection.recv(4096):
                text += part
        return json.loads(text) if text else _ENDED
    except (TimeoutError, OSError) as error:
        return _ENDED if isinstance(error, ConnectionError) else _SILENT


class Presence:
    """Answers the other ranks, and asks them."""

    def __init__(self, transport):
        self._rank = transport.rank
        self._server = _Server((_own_address(), 0), _Answer)
        threading.Thread(target=self._server.serve_forever, daemon=True, name="sok-presence").start()
        host, port = self._server.server_address[:2]
        text = f"{host}:{port}".encode().ljust(_ADDRESS_BYTES)
        with tf.init_scope():
            mine = tf.constant(np.frombuffer(text, np.uint8).astype(np.int32)[np.newaxis])
            everybody = transport.all_gather(mine, "sok/addresses").numpy()
        texts = [row.astype(np.uint8).tobytes().decode().strip() for row in everybody]
        self._addresses = [(t.rsplit(":", 1)[0], int(t.rsplit(":", 1)[1])) for t in texts]
        # The native library keeps the pointer, so this object must live as long.
        prototype = ctypes.CFUNCTYPE(
            None, ctypes.c_char_p, ctypes.POINTER(ctypes.c_char), ctypes.c_int
        )
        self._callback = prototype(self._fill)
        _native.library.sok_set_explain(self._callback)

    def _fill(self, name, buffer, size):
        text = self.explain(name.decode()).encode()[: size - 1]
        ctypes.memmove(buffer, text + b"\0", len(text) + 1)

    def explain(self, name: str) -> str:
        """Which ranks are missing in the collective `name`, and where they are."""
        others = [rank for rank in range(len(self._addresses)) if rank != self._rank]
        with concurrent.futures.ThreadPoolExecutor(min(32, len(others))) as pool:
            answers = dict(zip(others, pool.map(_ask, [self._addresses[rank] for rank in others])))
        here, missing = [self._rank], []
        for rank, answer in answers.items():
            if isinstance(answer, str):
                missing.append(f"rank {rank}: {answer}")
            elif name in (answer.get("name"), answer["failed"]):
                here.append(rank)
            elif "name" in answer:
                missing.append(
                    f"rank {rank}: in collective '{answer['name']}', step {answer['step']}, since "
                    f"{answer['seconds']:.1f} s"
                )
            else:
                missing.append(f"rank {rank}: in no collective")
        lines = [f"missing ranks: {'; '.join(missing)}"] if missing else ["no rank is missing"]
        lines.append(f"ranks in it: {', '.join(map(str, sorted(here)))}")
        return "\n".join(lines)
