# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Everything a table holds as a fixed set of arrays, and whether such a state is one for a table.

Checkpoints, weight files and `numpy()` hold these arrays; nothing in them is believed.
"""

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from sok import _native, checks

# origin: what table it is of; see `Origin`. Files written before there was one lack it.
# keys: [n]. values: [n, dimension]. states: all of a row side by side, [n, sum of state_widths].
# state_names, state_widths, state_initials: of each state; its first value. seed: of the initial values.
PARTS = {
    "origin": tf.string,
    "keys": tf.int64,
    "values": tf.float32,
    "states": tf.float32,
    "state_names": tf.string,
    "state_widths": tf.int64,
    "state_initials": tf.float32,
    "seed": tf.int64,
}
OPTIONAL = ("origin",)

# Of the states that optimizers give a table; None: the dimension.
STATE_WIDTHS = {
    f"{optimizer['name']}.{state['name']}": 1 if state["per_row"] else None
    for optimizer in _native.DESCRIPTION["optimizers"]
    for state in optimizer["states"]
}


@dataclasses.dataclass(frozen=True)
class Origin:
    """Which tables a state fits.

    kind: "hash" or "static". rows: of a static table on all ranks; -1: a hash table. part: "" for the whole
    table, else whose part the keys are of.
    """

    kind: str
    key_dtype: str
    dimension: int
    rows: int = -1
    part: str = ""

    def encode(self) -> list[bytes]:
        return [f"{name}={value}".encode() for name, value in dataclasses.asdict(self).items()]

    @classmethod
    def decode(cls, words: Iterable[Any], name: str) -> "Origin":
        try:
            given = dict(_text(word).split("=", 1) for word in words)
            origin = cls(
                given["kind"], given["key_dtype"], int(given["dimension"]), int(given["rows"]), given["part"]
            )
        except (KeyError, ValueError) as error:
            raise _damaged(name, f"its origin is {list(words)!r:.200}") from error
        if origin.kind not in _KINDS or origin.key_dtype not in _native.KEY_DTYPES:
            raise _damaged(name, f"its origin is {list(words)!r:.200}")
        return origin


_KINDS = {
    "hash": "sok.DynamicVariable, in a layer without vocabulary_size",
    "static": "sok.Variable, in a layer with vocabulary_size",
}


@dataclasses.dataclass(frozen=True)
class State:
    """A state that has been checked. widths: of each state. is_whole: of all ranks."""

    keys: np.ndarray
    values: Any
    states: Any
    widths: dict[str, int]
    initials: dict[str, float]
    seed: int
    is_whole: bool

    def planes(self) -> dict[str, Any]:
        """Values and states by name; a copy of the states."""
        widths = list(self.widths.values())
        parts = tf.split(tf.convert_to_tensor(self.states), widths, axis=1) if widths else []
        return {"values": self.values, **dict(zip(self.widths, parts))}

    def check_distinct(self, name: str) -> None:
        """Refuses a key that is repeated, for the table of this name, with a ValueError that has both."""
        ordered = np.sort(self.keys)
        again = np.flatnonzero(ordered[1:] == ordered[:-1])
        if len(again):
            raise _damaged(name, f"the id {ordered[again[0]]} is repeated")


def check(state: dict[str, Any], table: Origin, name: str, known: dict[str, tuple[int, float]], part: str) -> State:
    """Refuses a state that is damaged, or not one for a table.

    Repeated keys are left to the op that writes rows, which refuses them before it writes this table; whoever
    writes several calls `State.check_distinct`.

    Args:
        state: arrays by their names in `PARTS`.
        table: what it is to go into, and its `name` for messages.
        known: width and first value of each plane that the table has.
        part: whose part a state without an origin is of.

    Raises:
        ValueError: the message has what was saved, what the table is, and what to do.
    """
    missing = [each for each in PARTS if each not in state and each not in OPTIONAL]
    if missing:
        raise _damaged(name, f"it has no {', '.join(map(repr, missing))}")
    state = {each: value if hasattr(value, "dtype") else np.asarray(value) for each, value in state.items()}
    if "origin" in state:
        origin = Origin.decode(np.asarray(state["origin"]).ravel().tolist(), name)
        _check_origin(origin, table, name)
        part = origin.part
    keys, (rows, dimension) = _keys(state["keys"], name), _shape(state["values"], "values", 2, name)
    _check_numbers(state["values"], "values", name)
    _check_dimension(dimension, table, name)
    if rows != len(keys):
        raise _damaged(name, f"it has {len(keys)} keys, but values of {rows} rows")
    _check_range(keys, table, part == "", name)
    widths = _widths(state, dimension, known, name)
    count, width = _shape(state["states"], "states", 2, name)
    _check_numbers(state["states"], "states", name)
    if count != rows or width != sum(widths.values()):
        raise _damaged(
            name,
            f"its states have the shape [{count}, {width}], while {rows} keys and the widths {list(widths.values())} "
            f"make [{rows}, {sum(widths.values())}]",
        )
    initials = np.asarray(state["state_initials"])
    if initials.dtype.kind not in "fiu" or initials.shape != (len(widths),) or not np.all(np.isfinite(initials)):
        raise _damaged(name, f"its state_initials are {initials.tolist()!r:.200}, not {len(widths)} finite numbers")
    seed = np.asarray(state["seed"])
    if seed.dtype.kind not in "iu" or seed.shape != ():
        raise _damaged(name, f"its seed is {seed.dtype} {list(seed.shape)}, not one whole number")
    return State(
        keys=keys.astype(np.int64, copy=False),
        values=state["values"],
        states=state["states"],
        widths=widths,
        initials=dict(zip(widths, map(float, initials))),
        seed=int(seed.astype(np.int64)),
        is_whole=part == "",
    )


def require(state: dict[str, tf.Tensor], table: Origin, name: str) -> list[tf.Operation]:
    """As much of `check` as a graph can do, which restores what another graph of this table saved.

    Returns:
        the ops to wait for.
    """
    given = tf.strings.reduce_join(state["origin"], separator=" ")
    wanted = b" ".join(table.encode()).decode()
    message = f"table {name!r}: what is loaded is not its own: it must be of {wanted}, and is of"
    ops = checks.require(tf.equal(given, wanted), message, given)
    seed = state["seed"]
    ops += checks.require(tf.equal(tf.rank(seed), 0), f"table {name!r}: its seed must be one number, got", seed)
    limits, keys = np.iinfo(table.key_dtype), state["keys"]
    if limits.bits < 64:
        fits = tf.reduce_all((keys >= limits.min) & (keys <= limits.max))
        ops += checks.require(fits, f"table {name!r}: ids of key_type {table.key_dtype} must fit it, got", keys)
    return ops


def _check_origin(origin: Origin, table: Origin, name: str) -> None:
    if origin.kind != table.kind:
        raise _other(name, f"a {origin.kind} table", f"is a {table.kind} table", _KINDS[origin.kind])
    if not np.can_cast(origin.key_dtype, table.key_dtype):
        raise _other(
            name,
            f"a table of key_type {origin.key_dtype}",
            f"has key_type {table.key_dtype}, which cannot hold all of its ids",
            f"key_type={origin.key_dtype!r}",
        )
    _check_dimension(origin.dimension, table, name)
    _check_rows(origin.rows, table, name)
    if origin.part not in ("", table.part):
        raise ValueError(
            f"table {name!r}: what is loaded are the rows that {origin.part} kept, this is the table of "
            f"{table.part or 'one rank, which keeps all'}. To move rows between ranks, use sok.dump on all of them, "
            "and sok.load"
        )


def _check_dimension(dimension: int, table: Origin, name: str) -> None:
    if dimension != table.dimension:
        theirs, ours = f"a table of dimension {dimension}", f"has dimension {table.dimension}"
        raise _other(name, theirs, ours, f"dimension={dimension}")


def _check_rows(rows: int, table: Origin, name: str) -> None:
    if rows != table.rows:
        wanted = f"{rows} rows (in a layer: vocabulary_size={rows})"
        raise _other(name, f"a table of {rows} rows", f"has {table.rows} rows", wanted)


def _keys(keys: Any, name: str) -> np.ndarray:
    keys = np.asarray(keys)
    if keys.ndim != 1 or keys.dtype.kind not in "iu" or not np.can_cast(keys.dtype, np.int64):
        raise _damaged(name, f"its keys are {keys.dtype} {list(keys.shape)}, not int64 [n]")
    return keys


def _check_range(keys: np.ndarray, table: Origin, is_whole: bool, name: str) -> None:
    if table.kind == "static" and is_whole:
        _check_rows(len(keys), table, name)
    if not len(keys):
        return
    limits = np.iinfo(table.key_dtype)
    # Keys of 64 bits are bit patterns: those of uint64 may be negative here.
    least, most = (limits.min, limits.max) if limits.bits < 64 else (-(2**63), 2**63 - 1)
    what = f"has key_type {table.key_dtype}"
    if table.kind == "static":
        least, most, what = 0, min(most, table.rows - 1), f"has {table.rows} rows"
    for key in (int(keys.min()), int(keys.max())):
        if not least <= key <= most:
            raise ValueError(
                f"table {name!r}: what is loaded has the id {key}, this table {what}: ids from {least} to {most}. Make "
                "it as the table was that was saved"
            )


def _widths(state: dict[str, Any], dimension: int, known: dict[str, tuple[int, float]], name: str) -> dict[str, int]:
    """The width of each state, by its name."""
    given, widths = np.asarray(state["state_names"]), np.asarray(state["state_widths"])
    if given.ndim != 1 or (given.dtype.kind not in "OSU" and given.size):
        raise _damaged(name, f"its state_names are {given.dtype} {list(given.shape)}, not strings [number of states]")
    try:
        names = [_text(each) for each in given.tolist()]
    except ValueError as error:
        raise _damaged(name, f"its state_names are {given.tolist()!r:.200}") from error
    if len(set(names)) != len(names) or "values" in names or "" in names:
        raise _damaged(name, f"its state_names are {names}: each state has a name of its own")
    if widths.shape != (len(names),) or widths.dtype.kind not in "iu" or np.any(widths < 1):
        raise _damaged(name, f"its state_widths are {widths.tolist()!r:.200}, not a width for each of {names}")
    for state_name, width in zip(names, widths.tolist()):
        wanted = known[state_name][0] if state_name in known else STATE_WIDTHS.get(state_name, width) or dimension
        if width != wanted:
            raise _damaged(name, f"its state {state_name!r} has the width {width}, not {wanted}")
    return dict(zip(names, widths.tolist()))


def _text(word: Any) -> str:
    if not isinstance(word, (bytes, str)):
        raise ValueError(f"{word!r} is no string")
    return word.decode() if isinstance(word, bytes) else word


def _shape(array: Any, what: str, rank: int, name: str) -> tuple[int, ...]:
    shape = tuple(array.shape)
    if len(shape) != rank:
        raise _damaged(name, f"its {what} have the shape {list(shape)}, of rank {len(shape)}, not {rank}")
    return shape


def _check_numbers(array: Any, what: str, name: str) -> None:
    try:
        dtype = tf.as_dtype(array.dtype)
    except TypeError:
        dtype = tf.string
    if not (dtype.is_floating or dtype.is_integer):
        raise _damaged(name, f"its {what} are {array.dtype}, not numbers")


def _damaged(name: str, what: str) -> ValueError:
    return ValueError(
        f"table {name!r}: what is loaded is damaged: {what}. The table is as it was: load another copy, or save it "
        "again"
    )


def _other(name: str, theirs: str, ours: str, wanted: str) -> ValueError:
    return ValueError(
        f"table {name!r}: what is loaded was saved from {theirs}, this one {ours}: make it with {wanted}, or "
        "load what was saved from such a table"
    )
