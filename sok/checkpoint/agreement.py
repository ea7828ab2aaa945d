# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""All ranks go on, or none."""

import contextlib
import json
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from sok import comm
from sok.table_variable import TableVariable


class Agreement:
    """Makes what one rank raises the error of all."""

    def __init__(self, communicator: comm.Communicator):
        self._communicator = communicator

    @contextlib.contextmanager
    def step(self, kind: type[Exception] = ValueError) -> Iterator[None]:
        """Ends on all ranks, or raises on all: on a rank that failed its own error, else one of this kind with
        what the others say."""
        error: BaseException | None = None
        try:
            yield
        except Exception as caught:
            if self._communicator.size == 1:
                raise
            error = caught
        if self._communicator.size == 1:
            return
        others = self._tell("" if error is None else f"{type(error).__name__}: {error}")
        if error is not None:
            raise error
        if any(others):
            raise kind("; ".join(f"rank {rank}: {text}" for rank, text in enumerate(others) if text))

    def same(self, text: str, what: str) -> None:
        """Refuses, on all ranks, what is not the same on all.

        Raises:
            ValueError: it is not; the message begins with `what`, and has the texts of all ranks.
        """
        if self._communicator.size > 1:
            texts = self._tell(text)
            if len(set(texts)) > 1:
                raise ValueError(f"{what}: " + ", ".join(f"rank {rank}: {text}" for rank, text in enumerate(texts)))

    def same_tables(self, tables: dict[str, TableVariable], switches: list[bool], what: str) -> None:
        """As `same`, of tables, their names and order, and of arguments that are True or False."""
        kinds = {name: table.shared_facts() for name, table in tables.items()}
        self.same(json.dumps([*switches, kinds]), what)

    def _tell(self, text: str) -> list[str]:
        """What every rank says."""
        said = np.frombuffer(json.dumps([self._communicator.rank, text]).encode() + b"\n", np.uint8)
        heard = self._communicator.all_gather(tf.constant(said.astype(np.int32)), "agree")
        lines = np.asarray(heard).astype(np.uint8).tobytes().decode().splitlines()
        return [text for _, text in sorted(json.loads(line) for line in lines)]
