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
others and with the sizes of the files.
"""

import dataclasses
import json
import re
from typing import Any

import numpy as np
import xxhash

FILE = "manifest.json"
FORMAT, VERSION = "sok.dump", 1
# Of a manifest: a thousand tables of a thousand shards need a tenth of it.
MOST_BYTES = 1 << 28
# What a safetensors file may add to its tensors: names, shapes and offsets.
MOST_HEADER_BYTES = 1 << 20

_GENERATION = re.compile(r"data-[0-9a-f]{16}")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,200}\.safetensors")
ROW_DTYPES = {"float32": 4, "float16": 2, "bfloat16": 2}
KEY_DTYPES = {"int32": 4, "int64": 8, "uint32": 4, "uint64": 8}
KINDS = ("hash", "static")


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
    """kind: "hash" or "static". rows: on all ranks. placement: kind, owner and ranks, as it was dumped."""

    name: str
    kind: str
    key_dtype: str
    rows: int
    seed: int
    initializer: dict[str, Any]
    placement: dict[str, Any]
    planes: tuple[Plane, ...]
    shards: tuple[Shard, ...]

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

    def count(self, data: Any, name: str, least: int = 0, most: int = 2**62) -> int:
        value = self.get(data, name, int)
        if not least <= value <= most:
            self.fail(f"{name!r} is {value}, not in [{least}, {most}]")
        return value

    def name(self, data: Any, name: str, pattern: re.Pattern) -> str:
        value = self.get(data, name, str)
        if not pattern.fullmatch(value):
            self.fail(f"{name!r} is {value!r:.80}, which is no name of a file in a dump")
        return value

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
            float(self.get(data, "initial", (int, float))),
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
        )
        if not table.planes:
            inner.fail("has no planes")
        if len(table.states) != len(table.planes) - 1:
            inner.fail("names a state twice")
        if sum(shard.rows for shard in table.shards) != table.rows:
            inner.fail(f"has {table.rows} rows, its shards {sum(shard.rows for shard in table.shards)}")
        for shard in table.shards:
            least = shard.rows * table.row_bytes
            if not least <= shard.bytes <= least + MOST_HEADER_BYTES:
                inner.fail(f"{shard.file} has {shard.bytes} bytes for {shard.rows} rows of {table.row_bytes}")
        return table

    def variable(self, data: Any) -> Variable:
        shape = self.get(data, "shape", list)
        if not all(isinstance(size, int) and 0 <= size < 2**40 for size in shape):
            self.fail(f"a variable has the shape {shape!r:.80}")
        return Variable(
            self.one_of(data, "group", ("variables", "optimizer")),
            self.get(data, "name", str),
            self.get(data, "dtype", str),
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
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: not a manifest of a dump: {error}") from error
    if reader.get(data, "format", str) != FORMAT:
        reader.fail(f"format is {data['format']!r:.80}, not {FORMAT!r}")
    if reader.count(data, "version") != VERSION:
        reader.fail(f"version {data['version']} of the format; this library reads version {VERSION}")
    body = {name: value for name, value in data.items() if name != "checksum"}
    if reader.get(data, "checksum", str) != checksum(_canonical(body)):
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
    _check_files(reader, manifest)
    if manifest.variables:
        shard = manifest.variables_shard
        if shard is None:
            return reader.fail("has variables, but no file of them")
        if sum(int(np.prod(v.shape, dtype=object)) for v in manifest.variables) > shard.bytes:
            reader.fail("its variables are larger than their file")
    return manifest


def _check_files(reader: _Reader, manifest: Manifest) -> None:
    """Every file once, written by a rank that there was: those of others would be read by nobody."""
    seen = set()
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
