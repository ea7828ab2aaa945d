# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Dumps of NVIDIA's SOK 2: rows and, for those who give an optimizer, their states.

Of each table a folder holds `<table>-key`, `<table>-weight` and, for each state of the optimizer, a file
`<table>-<optimizer>-<state>`; punctuation in the table's name is "_". Each begins with 296 bytes: the table's
name [256], the kind of file [4], the state's name [32], the type [4]; texts are right-justified, numbers
big-endian. The array follows; row i of every file belongs to key i.
"""

import dataclasses
import string
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from sok import comm
from sok.checkpoint import imported, variables
from sok.checkpoint.agreement import Agreement
from sok.checkpoint.storage import path_name
from sok.optimizers.wrapper import OptimizerWrapper
from sok.stages.update import OPTIMIZERS
from sok.table_variable import TableVariable

_NAME_BYTES, _STATE_BYTES = 256, 32
_HEADER_BYTES = _NAME_BYTES + 4 + _STATE_BYTES + 4
_KINDS = {"key": 0, "weight": 1, "state": 2}
_FLOATS = {4: "float16", 5: "float32", 6: "float64"}
_DTYPES = {
    "key": {0: "int32", 1: "int64", 2: "uint32", 3: "uint64"},
    "weight": _FLOATS,
    "state": _FLOATS,
}


@dataclasses.dataclass(frozen=True)
class _Rule:
    """optimizers: how SOK 2 may call it in names of files. slots: our states and its names of them."""

    optimizers: tuple[str, ...]
    slots: dict[str, str]


# By our rules. SOK 2 takes the last name of its list that occurs in that of the class, "Adam" for Adamax.
_RULES = {
    "sgd": _Rule(("SGD",), {}),
    "momentum": _Rule(("SGD",), {"momentum": "momentum"}),
    "adagrad": _Rule(("Adagrad",), {"accumulator": "accumulator"}),
    "adam": _Rule(("Adam",), {"m": "m", "v": "v"}),
    "adam_amsgrad": _Rule(("Adam",), {"m": "m", "v": "v", "v_hat": "vhat"}),
    "adamax": _Rule(("Adamax", "Adam"), {"m": "m", "u": "v"}),
    "adadelta": _Rule(("Adadelta",), {"accumulated_grad": "accum_grad", "accumulated_delta": "accum_var"}),
    "ftrl": _Rule(("Ftrl",), {"accumulator": "accumulator", "linear": "linear"}),
}


def load_sok2(path, load_vars, optimizer=None) -> dict[str, int]:
    """Writes rows that NVIDIA's SOK 2 dumped: known ids are overwritten, others inserted.

    On several ranks every rank must call it, and keeps its part.

    Args:
        path: the folder.
        load_vars: tables, a list of them, or a dict from SOK 2's names, none under two names.
        optimizer: a `sok.OptimizerWrapper` of the optimizer that SOK 2 trained them with; the states of rows
            are read too, where the dump has them. Its step is not in such a dump: `optimizer.iterations.assign(n)`
            sets it, which Adam and Adamax need. None: states start anew.

    Returns:
        how many rows each has got.

    Raises:
        ValueError: a file is missing, cut or of another table, or does not fit, or the states are those of
            another optimizer; no table has changed then.
        TypeError: the optimizer is no `sok.OptimizerWrapper`, or `path` no path.
        tf.errors.ResourceExhaustedError: the rows do not fit; no table has changed.

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> def write(name, kind, type_number, array):
    ...     header = b" " * 256 + bytes([0, 0, 0, kind]) + b" " * 32 + bytes([0, 0, 0, type_number])
    ...     _ = (folder / name).write_bytes(header + array.tobytes())
    >>> write("items-key", 0, 1, np.array([7, 8]))
    >>> write("items-weight", 1, 5, np.ones((2, 3), np.float32))
    >>> sok.checkpoint.load_sok2(folder, sok.DynamicVariable(3, name="items"))
    {'items': 2}
    """
    agreement = Agreement(comm.current())
    with agreement.step():
        tables, others = variables.named(load_vars, "load_vars")
        if others:
            raise ValueError(f"SOK 2 dumps tables only, got {', '.join(others)}")
        variables.check_named_once(tables, "load_vars")
        if optimizer is not None and not isinstance(optimizer, OptimizerWrapper):
            raise TypeError(f"optimizer must be a sok.OptimizerWrapper, got {type(optimizer).__name__}")
        folder = Path(path_name(path))
    agreement.same_tables(
        tables,
        [optimizer is not None],
        f"{folder}: the ranks do not load the same tables in the same order, all or none with an optimizer",
    )
    with agreement.step():
        found = {name: _read(folder, name, table, optimizer) for name, table in tables.items()}
    imported.write([(tables[name], rows) for name, (rows, _) in found.items()])
    for _, anew in found.values():
        if anew:
            warnings.warn(anew, stacklevel=2)
    return {name: len(rows.keys) for name, (rows, _) in found.items()}


def _read(
    folder: Path, name: str, table: TableVariable, optimizer: OptimizerWrapper | None
) -> tuple[imported.Rows, str]:
    """Rows, and why states that somebody may expect start anew; empty: none do."""
    # As SOK 2 makes names of files.
    stem = "".join("_" if letter in string.punctuation else letter for letter in name)
    key_file, weight_file = folder / f"{stem}-key", folder / f"{stem}-weight"
    weights = _array(weight_file, (name, stem), "weight")
    if weights.size % table.dimension:
        raise ValueError(f"{weight_file} has {weights.size} numbers, which are no rows of {table.dimension}")
    values = weights.reshape(-1, table.dimension)
    ids = _array(key_file, (name, stem), "key")
    if len(ids) != len(values):
        raise ValueError(f"{key_file} has {len(ids)} keys, {weight_file.name} {len(values)} rows")
    imported.check_different(ids, str(key_file))
    keys = imported.keys_of(table, ids, str(key_file))
    planes: dict[str, np.ndarray] = {"values": values}
    initials = {}
    files, anew = _state_files(folder, name, stem, table, optimizer)
    for plane, (file, initial) in files.items():
        state = _array(file, (name, stem), "state", file.name.rsplit("-", 1)[1])
        if state.size != values.size:
            raise ValueError(
                f"{file} has {state.size} numbers; {len(ids)} keys of dimension {table.dimension} need {values.size}"
            )
        planes[plane], initials[plane] = state.reshape(values.shape), initial
    return imported.Rows.of_arrays(keys, planes, initials), anew


def _state_files(
    folder: Path, name: str, stem: str, table: TableVariable, optimizer: OptimizerWrapper | None
) -> tuple[dict[str, tuple[Path, float]], str]:
    """For each plane its file and what it starts with, or none, and why.

    Raises:
        ValueError: they are not those of the optimizer.
    """
    there = {
        tuple(file.name.split("-")[1:]): file for file in folder.glob(f"{stem}-*-*") if file.name.count("-") == 2
    }
    if optimizer is None:
        text = f"{folder} has states of the table {name!r}, which start anew: {_list(there)}; pass the optimizer"
        return {}, text if there else ""
    source = optimizer._source_of(table)
    states = OPTIMIZERS[source.rule]["states"]
    if not there:
        return {}, f"{folder} has no states of the table {name!r}: they start anew" if states else ""
    rule = _RULES.get(source.rule)
    if rule is None:
        raise ValueError(f"{folder}: SOK 2 had no optimizer like {source.rule}, and its states are {_list(there)}")
    used = next((each for each in rule.optimizers if any(other == each for other, _ in there)), rule.optimizers[0])
    wanted = {(used, slot): state for state, slot in rule.slots.items()}
    missing = [f"{stem}-{'-'.join(key)}" for key in wanted if key not in there]
    extra = {key: file for key, file in there.items() if key not in wanted}
    if missing or extra:
        raise ValueError(
            f"{folder}: the table {name!r} has other states than those of {source.rule}"
            + (f"; missing: {', '.join(missing)}" if missing else "")
            + (f"; not one of them: {_list(extra)}" if extra else "")
        )
    initials = {state["name"]: source.initial if state["initial"] else 0.0 for state in states}
    return {f"{source.rule}.{state}": (there[key], initials[state]) for key, state in wanted.items()}, ""


def _list(files: dict[Any, Path]) -> str:
    return ", ".join(sorted(file.name for file in files.values()))


def _array(path: Path, names: tuple[str, ...], what: str, state: str = "") -> np.ndarray:
    """The array of a file, in the file."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise ValueError(f"{path} is missing") from None
    if not path.is_file():
        raise ValueError(f"{path} is no file")
    if size < _HEADER_BYTES:
        raise ValueError(f"{path} has {size} bytes, less than the header of {_HEADER_BYTES}")
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    held = header[:_NAME_BYTES].strip(b"\x00 ").decode(errors="replace")
    kind = int.from_bytes(header[_NAME_BYTES : _NAME_BYTES + 4], "big")
    held_state = header[_NAME_BYTES + 4 : -4].strip(b"\x00 ").decode(errors="replace")
    number = int.from_bytes(header[-4:], "big")
    # Some versions leave the name empty.
    if held and held not in names:
        raise ValueError(f"{path} belongs to the table {held!r}, not {names[0]!r}")
    if kind != _KINDS[what]:
        raise ValueError(f"{path} is a file of the kind {kind}, not of {what}s")
    if held_state != state:
        raise ValueError(f"{path} is of the state {held_state!r}, not {state!r}")
    if number not in _DTYPES[what]:
        raise ValueError(f"{path} has the type {number}; known are {_DTYPES[what]}")
    dtype = np.dtype(_DTYPES[what][number])
    if (size - _HEADER_BYTES) % dtype.itemsize:
        raise ValueError(f"{path} was cut: {size - _HEADER_BYTES} bytes are no whole numbers of {dtype}")
    return np.memmap(path, dtype, "r", _HEADER_BYTES) if size > _HEADER_BYTES else np.zeros(0, dtype)
