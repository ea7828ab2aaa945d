# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a dump holds, as its `manifest.json` says it.

A dump is a folder:

    manifest.json              what is here; written last, and put in place by one rename
    data-<generation>/*.safetensors
                               rows of tables: tensors "keys" [n], "values" [n, width] and one for each
                               optimizer state, [n, its width]; ordinary variables by number

A new dump in the same folder writes another generation; the manifest that names it replaces the old one,
and only then are the old shards removed. So a folder holds a whole dump at every moment after the first.

Nothing in a manifest is believed: names are plain file names, and every number must agree with the
others and with the sizes of the files. No shard is larger than `MOST_SHARD_BYTES` or eight rows, so that
memory for some of them is all that reading a dump needs, whatever its files say.
"""

import dataclasses
import json
import math
import re
from typing import Any

import tensorflow as tf
import xxhash

FILE = "manifest.json"
FORMAT, VERSION = "sok.dump", 1
# Of a manifest: a million shards need two thirds of it.
MOST_BYTES = 1 << 28
# What a safetensors file may add to its tensors: names, shapes and offsets. More for each variable.
MOST_HEADER_BYTES, MOST_HEADER_BYTES_A_VARIABLE = 1 << 20, 1 << 10
# Of a shard's rows, unless eight rows are larger.
MOST_SHARD_BYTES, LEAST_SHARD_ROWS = 32 << 20, 8
# Of anything that is counted; the step among it.
MOST_COUNT = 2**62
# Of a variable: numpy has no arrays of more.
_MOST_AXES = 64

_GENERATION = re.compile(r"data-[0-9a-f]{16}")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,200}\.safetensors")
ROW_DTYPES = {"float32": 4, "float16": 2, "bfloat16": 2}
KEY_DTYPES = {"int32": 4, "int64": 8, "uint32": 4, "uint64": 8}
KINDS = ("hash", "static")
# What a file of tensors can hold, and safetensors's names of it.
DTYPES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32", "int32": "I32",
    "uint64": "U64", "int64": "I64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
}  # fmt: skip


def checksum(data: Any) -> str:
    """XXH3 of some bytes: against accidents, not against forgery."""
    return xxhash.xxh3_64_hexdigest(data)


@dataclasses.dataclass(frozen=True)
class Shard:
    """file: its name in the generation's folder. rank: who wrote it. rows: of a table's shard."""

    file: str
    rank: int
    rows: int
    bytes: int
    checksum: str


@dataclasses.dataclass(frozen=True)
class Plane:
    """One tensor of a table's shards: "values", or a state, which is float32 and starts at `initial`."""

    name: str
    width: int
    dtype: str
    initial: float = 0.0


@dataclasses.dataclass(frozen=True)
class Table:
    """kind: "hash" or "static". rows: on all ranks. placement: kind, owner and ranks, as it was dumped.
    optimizer_states: those that the optimizer of the dump gives rows; None: it has no optimizer, or does not say.
    """

    name: str
    kind: str
    key_dtype: str
    rows: int
    seed: int
    initializer: dict[str, Any]
    placement: dict[str, Any]
    planes: tuple[Plane, ...]
    shards: tuple[Shard, ...]
    optimizer_states: tuple[str, ...] | None = None

    @property
    def row_bytes(self) -> int:
        return row_bytes(self.key_dtype, self.planes)

    @property
    def states(self) -> dict[str, Plane]:
        return {plane.name: plane for plane in self.planes[1:]}


def row_bytes(key_dtype: str, planes: tuple[Plane, ...]) -> int:
    return KEY_DTYPES[key_dtype] + sum(plane.width * ROW_DTYPES[plane.dtype] for plane in planes)


@dataclasses.dataclass(frozen=True)
class Variable:
    """An ordinary variable; `group` is "variables" or "optimizer". Tensor i of the file is entry i."""

    group: str
    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * tf.as_dtype(self.dtype).size


@dataclasses.dataclass(frozen=True)
class Manifest:
    generation: str
    ranks: int
    step: int | None
    values_only: bool
    written_by: dict[str, str]
    tables: tuple[Table, ...]
    variables: tuple[Variable, ...] = ()
    variables_shard: Shard | None = None

    def encode(self) -> bytes:
        body = {"format": FORMAT, "version": VERSION, **dataclasses.asdict(self)}
        return json.dumps({**body, "checksum": checksum(_canonical(body))}, indent=1).encode()


def _canonical(body: dict[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()


class _Reader:
    """Takes fields out of JSON objects; what is not as it must be is an error that names the place."""

    def __init__(self, where: str):
        self.where = where

    def fail(self, message: str) -> Any:
        raise ValueError(f"{self.where}: {message}")

    def get(self, data: Any, name: str, kind: Any) -> Any:
        if not isinstance(data, dict) or name not in data:
            self.fail(f"has no {name!r}")
        value = data[name]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            self.fail(f"{name!r} is {value!r:.80}")
        return value

    def count(self, data: Any, name: str, least: int = 0, most: int = MOST_COUNT) -> int:
        value = self.get(data, name, int)
        if not least <= value <= most:
            self.fail(f"{name!r} is {value!r:.80}, not in [{least}, {most}]")
        return value

    def first_value(self, data: Any, name: str) -> float:
        """A number that a row can start with."""
        value = self.get(data, name, (int, float))
        if not abs(value) <= float(tf.float32.max):  # NaN is not either
            self.fail(f"{name!r} is {value!r:.80}, which is no finite float32")
        return float(value)

    def name(self, data: Any, name: str, pattern: re.Pattern) -> str:
        value = self.get(data, name, str)
        if not pattern.fullmatch(value):
            self.fail(f"{name!r} is {value!r:.80}, which is no name of a file in a dump")
        return value

    def names(self, data: Any, name: str) -> tuple[str, ...] | None:
        """A list of strings that may be missing."""
        if data.get(name) is None:
            return None
        value = self.get(data, name, list)
        if not all(isinstance(entry, str) for entry in value):
            self.fail(f"{name!r} is {value!r:.80}, no list of names")
        return tuple(value)

    def one_of(self, data: Any, name: str, allowed: Any) -> str:
        value = self.get(data, name, str)
        if value not in allowed:
            self.fail(f"{name!r} is {value!r:.80}, not one of {', '.join(allowed)}")
        return value

    def shard(self, data: Any) -> Shard:
        return Shard(
            self.name(data, "file", _FILE),
            self.count(data, "rank"),
            self.count(data, "rows"),
            self.count(data, "bytes"),
            self.get(data, "checksum", str),
        )

    def plane(self, data: Any, number: int) -> Plane:
        plane = Plane(
            self.get(data, "name", str),
            self.count(data, "width", 1, 2**24),
            self.one_of(data, "dtype", ROW_DTYPES),
            self.first_value(data, "initial"),
        )
        if (plane.name == "values") != (number == 0) or plane.name == "keys":
            self.fail(f"plane {number} has the name {plane.name!r:.80}")
        if number > 0 and plane.dtype != "float32":
            self.fail(f"the state {plane.name!r:.80} is {plane.dtype}, not float32")
        return plane

    def table(self, data: Any) -> Table:
        name = self.get(data, "name", str)
        inner = _Reader(f"{self.where}: table {name!r:.120}")
        placement = inner.get(data, "placement", dict)
        inner.get(placement, "kind", str)
        inner.count(placement, "owner", -1)
        inner.count(placement, "ranks", 1)
        table = Table(
            name,
            inner.one_of(data, "kind", KINDS),
            inner.one_of(data, "key_dtype", KEY_DTYPES),
            inner.count(data, "rows"),
            inner.count(data, "seed", -(2**63), 2**63 - 1),
            inner.get(data, "initializer", dict),
            placement,
            tuple(inner.plane(plane, i) for i, plane in enumerate(inner.get(data, "planes", list))),
            tuple(inner.shard(shard) for shard in inner.get(data, "shards", list)),
            inner.names(data, "optimizer_states"),
        )
        if not table.planes:
            inner.fail("has no planes")
        if len(table.states) != len(table.planes) - 1:
            inner.fail("names a state twice")
        if sum(shard.rows for shard in table.shards) != table.rows:
            inner.fail(f"has {table.rows} rows, its shards {sum(shard.rows for shard in table.shards)}")
        most = max(MOST_SHARD_BYTES, LEAST_SHARD_ROWS * table.row_bytes)
        for shard in table.shards:
            least = shard.rows * table.row_bytes
            if not least <= shard.bytes <= least + MOST_HEADER_BYTES:
                inner.fail(f"{shard.file} has {shard.bytes} bytes for {shard.rows} rows of {table.row_bytes}")
            if least > most:
                inner.fail(f"{shard.file} has rows of {least} bytes; a shard has at most {most}")
        return table

    def variable(self, data: Any) -> Variable:
        shape = self.get(data, "shape", list)
        if len(shape) > _MOST_AXES or not all(type(size) is int and 0 <= size < 2**40 for size in shape):
            self.fail(f"a variable has the shape {shape!r:.80}")
        return Variable(
            self.one_of(data, "group", ("variables", "optimizer")),
            self.get(data, "name", str),
            self.one_of(data, "dtype", DTYPES),
            tuple(shape),
        )


def decode(text: bytes, where: str) -> Manifest:
    """A manifest from what a file holds.

    Args:
        where: the file, for messages.

    Raises:
        ValueError: it is no manifest, of another version, or its parts contradict each other.
    """
    reader = _Reader(where)
    try:
        data = json.loads(text, object_pairs_hook=_without_repetition)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: not a manifest of a dump: {error!s:.200}") from error
    if reader.get(data, "format", str) != FORMAT:
        reader.fail(f"format is {data['format']!r:.80}, not {FORMAT!r}")
    if reader.count(data, "version") != VERSION:
        reader.fail(f"version {data['version']} of the format; this library reads version {VERSION}")
    body = {name: value for name, value in data.items() if name != "checksum"}
    try:
        fits = reader.get(data, "checksum", str) == checksum(_canonical(body))
    except RecursionError:  # it can be read, but not written
        fits = False
    if not fits:
        reader.fail("its checksum does not fit: the file has changed since it was written")
    step = data.get("step")
    manifest = Manifest(
        reader.name(data, "generation", _GENERATION),
        reader.count(data, "ranks", 1),
        step if step is None else reader.count(data, "step"),
        reader.get(data, "values_only", bool),
        reader.get(data, "written_by", dict),
        tuple(reader.table(table) for table in reader.get(data, "tables", list)),
        tuple(reader.variable(variable) for variable in reader.get(data, "variables", list)),
        None if data.get("variables_shard") is None else reader.shard(data["variables_shard"]),
    )
    if len({table.name for table in manifest.tables}) != len(manifest.tables):
        reader.fail("names a table twice")
    if len({(variable.group, variable.name) for variable in manifest.variables}) != len(manifest.variables):
        reader.fail("names a variable twice")
    _check_files(reader, manifest)
    _check_variables(reader, manifest)
    return manifest


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; a name that it has twice would mean one thing here and another elsewhere."""
    result = dict(pairs)
    if len(result) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"an object has {name!r:.80} twice")
            seen.add(name)
    return result


def _check_variables(reader: _Reader, manifest: Manifest) -> None:
    """The file of the variables is as large as they are."""
    shard = manifest.variables_shard
    if manifest.variables and shard is None:
        reader.fail("has variables, but no file of them")
    if shard is not None:
        least, count = sum(variable.bytes for variable in manifest.variables), len(manifest.variables)
        if least > shard.bytes:
            reader.fail(f"its variables are larger than their file: {least} bytes, {shard.file} has {shard.bytes}")
        if shard.bytes > least + MOST_HEADER_BYTES + count * MOST_HEADER_BYTES_A_VARIABLE:
            reader.fail(f"{shard.file} has {shard.bytes} bytes for {count} variables of {least}")


def _check_files(reader: _Reader, manifest: Manifest) -> None:
    """Every file once, written by a rank that there was: those of others would be read by nobody."""
    seen = set() if manifest.variables_shard is None else {manifest.variables_shard.file}
    for table in manifest.tables:
        for shard in table.shards:
            if shard.rank >= manifest.ranks:
                reader.fail(f"{shard.file} was written by rank {shard.rank} of {manifest.ranks}")
            if table.placement["owner"] not in (-1, shard.rank):
                reader.fail(f"{shard.file} was written by rank {shard.rank}, not by {table.placement['owner']}")
            if shard.file in seen:
                reader.fail(f"names {shard.file} twice")
            seen.add(shard.file)


def is_generation(name: str) -> bool:
    return _GENERATION.fullmatch(name) is not None
