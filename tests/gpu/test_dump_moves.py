# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Dumps that move between the CPU and a GPU, in both directions."""

import moved_dumps
import pytest

from sok.checkpoint import shards


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("kind", ["static", "hash"])
@pytest.mark.parametrize(("first", "second"), [("/CPU:0", "/GPU:0"), ("/GPU:0", "/CPU:0")])
def test_there_and_back(tmp_path, monkeypatch, first, second, kind, dtype):
    monkeypatch.setattr(shards, "SHARD_BYTES", 2000)
    moved_dumps.there_and_back(tmp_path, first, second, kind, dtype)
