# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""The counters of `sok.stats()` against what the kernel says about this process's connections.

Counters know what a collective was asked to send. Here a collective that sends more, such as an
all-gather in place of an all-to-all, is found out.
"""

import os
import socket
import struct

import numpy as np
import tensorflow as tf

import sok

FLOATS = 1 << 20
# Of tcpi_bytes_acked in Linux's struct tcp_info.
ACKNOWLEDGED = 120


def acknowledged():
    """Bytes that other processes have received from this one, over all TCP connections."""
    total = 0
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        try:
            connection = socket.socket(fileno=os.dup(descriptor))
        except OSError:
            continue  # the listing's own descriptor, or no socket
        with connection:
            if connection.type == socket.SOCK_STREAM and connection.family != socket.AF_UNIX:
                info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                total += struct.unpack_from("Q", info, ACKNOWLEDGED)[0]
    return total


def on_the_wire(method):
    """Bytes that this process has sent to others in a collective, and those that were counted."""
    c = sok.init()
    # From rank 0 to rank 1 only.
    splits = np.zeros(c.size, int)
    splits[1] = FLOATS if c.rank == 0 else 0
    calls = {
        "all_to_all": lambda: c.all_to_all(tf.zeros([splits.sum()]), splits, f"wire_{method}"),
        "all_gather": lambda: c.all_gather(tf.zeros([FLOATS]), f"wire_{method}"),
        "reduce_scatter": lambda: c.reduce_scatter(tf.zeros([c.size, FLOATS]), f"wire_{method}"),
    }
    c.barrier()
    before = acknowledged()
    calls[method]()
    # Whatever has come by now has been acknowledged.
    c.barrier()
    return acknowledged() - before, sok.stats()[f"wire_{method}"]["sent_bytes"]


def check(ranks, method, counted):
    """Counted bytes are what they should be, and travel; a few KiB more are Horovod's own messages."""
    results = ranks.run(on_the_wire, method)
    assert [c for _, c in results] == counted
    return np.array([sent for sent, _ in results])


def test_all_to_all_sends_each_rank_its_own(ranks):
    counted = [FLOATS * 4] + [0] * (ranks.size - 1)
    sent = check(ranks, "all_to_all", counted)
    np.testing.assert_allclose(sent, counted, rtol=0.05, atol=2**17)


def test_all_gather_sends_each_rank_everything(ranks):
    counted = [FLOATS * 4 * (ranks.size - 1)] * ranks.size
    sent = check(ranks, "all_gather", counted)
    np.testing.assert_allclose(sent, counted, rtol=0.05, atol=2**17)


def test_reduce_scatter_sends_no_more_than_the_shares_of_others(ranks):
    counted = [FLOATS * 4 * (ranks.size - 1)] * ranks.size
    sent = check(ranks, "reduce_scatter", counted)
    # Rank by rank it is up to the transport.
    assert sent.sum() <= sum(counted) * 1.5
