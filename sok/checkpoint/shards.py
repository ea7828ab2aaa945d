# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Files of tensors in the safetensors format: from arrays to bytes, and back.

Written and read here, not by the safetensors library, which copies every tensor into memory of its own:
arrays go straight into the pages that are written, and come as views of those that were read. Whoever has
the library reads these files.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import xxhash

from sok.checkpoint import files, manifest

# Of a shard's rows. Small, since several are in memory at once while they travel.
SHARD_BYTES = 8 << 20
# Larger ones where a rank would have more files of a table than this, up to what a manifest allows.
_MANY_FILES = 10_000
# Rows of a shard come in multiples, so that TensorFlow takes the arrays of a file where they are: it wants
# them to begin at multiples of 64 bytes. So does the header's length.
_ALIGNMENT = 64

# By safetensors's names.
_DTYPES = {name: dtype for dtype, name in manifest.DTYPES.items()}
_LENGTH_BYTES = 8
# Of a file whose checksum is compared without holding all of it: what stays in a processor's cache.
_PIECE_BYTES = 1 << 20


def rows_a_shard(row_bytes: int, rows: int) -> int:
    size = min(max(SHARD_BYTES, rows * row_bytes // _MANY_FILES), manifest.MOST_SHARD_BYTES)
    count = max(manifest.LEAST_SHARD_ROWS, size // row_bytes)
    return count if count < _ALIGNMENT else count // _ALIGNMENT * _ALIGNMENT


def numpy_dtype(name: str) -> np.dtype:
    return np.dtype(tf.as_dtype(name).as_numpy_dtype)


def encode(arrays: dict[str, np.ndarray], dtypes: dict[str, str], buffer: memoryview | None = None) -> memoryview:
    """A file of some arrays.

    Args:
        dtypes: what they are written as.
        buffer: where the file goes, if it is large enough.
    """
    header, end = {}, 0
    for name, array in arrays.items():
        dtype = dtypes[name]
        begin, end = end, end + array.size * numpy_dtype(dtype).itemsize
        header[name] = {"dtype": manifest.DTYPES[dtype], "shape": list(array.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(_LENGTH_BYTES + len(text)) % _ALIGNMENT)
    first = _LENGTH_BYTES + len(text)
    if buffer is None or len(buffer) < first + end:
        buffer = files.aligned(first + end)
    buffer[:_LENGTH_BYTES] = len(text).to_bytes(_LENGTH_BYTES, "little")
    buffer[_LENGTH_BYTES:first] = text
    for name, array in arrays.items():
        begin, stop = header[name]["data_offsets"]
        out = np.frombuffer(buffer[first + begin : first + stop], numpy_dtype(dtypes[name]))
        out.reshape(array.shape)[...] = array
    return buffer[: first + end]


def read(path: Path, name: str, expected: manifest.Shard, buffer: memoryview, direct: bool) -> memoryview:
    """The bytes of a file, in `buffer`.

    Args:
        name: for messages.
        direct: see `files.read`.

    Raises:
        ValueError: it is not the file that was written: its size or its checksum is another.
    """
    size = files.read(path, buffer, direct)
    if size != expected.bytes or files.size(path) != size:
        raise _cut(name, expected)
    if manifest.checksum(buffer[:size]) != expected.checksum:
        raise _changed(name)
    return buffer[:size]


def _cut(name: str, expected: manifest.Shard) -> ValueError:
    return ValueError(f"{name} has not {expected.bytes} bytes, as the manifest says: it was cut or changed")


def _changed(name: str) -> ValueError:
    return ValueError(f"{name}: its checksum does not fit: the file has changed since it was written")


def read_some(
    path: Path,
    name: str,
    expected: manifest.Shard,
    wanted: dict[str, tuple[str, tuple[int, ...]]],
    least: int,
    check: bool,
) -> dict[str, np.ndarray]:
    """Some arrays of a file, in no more memory than theirs.

    Args:
        name: for messages.
        wanted: as for `decode`.
        least: bytes of all arrays of the file, as far as the manifest says.
        check: compare the checksum, for which all of it is read.

    Raises:
        ValueError: as `read` and `decode`.
    """

    def take(begin: int, size: int, buffer: memoryview | None = None) -> memoryview:
        data = files.read_at(descriptor, begin, size, buffer)
        if len(data) < size:
            raise _cut(name, expected)
        return data

    with files.opened(path) as (descriptor, size):
        if size != expected.bytes:
            raise _cut(name, expected)
        if check:
            checksum, buffer = xxhash.xxh3_64(), np.empty(min(size, _PIECE_BYTES), np.uint8).data
            for begin in range(0, size, _PIECE_BYTES):
                checksum.update(take(begin, min(_PIECE_BYTES, size - begin), buffer))
            if checksum.hexdigest() != expected.checksum:
                raise _changed(name)
        return _arrays(take, size, size - least, name, wanted)


def read_keys(path: Path, name: str, table: manifest.Table, shard: manifest.Shard) -> np.ndarray:
    """The keys alone of a table's file, which has been checked."""
    wanted = shard_tensors(table, shard.rows, ())
    return read_some(path, name, shard, wanted, shard.rows * table.row_bytes, check=False)["keys"]


def decode(data: memoryview, name: str, wanted: dict[str, tuple[str, tuple[int, ...]]]) -> dict[str, np.ndarray]:
    """Arrays of a file: views of its bytes.

    Args:
        wanted: dtypes and shapes that must be there.

    Raises:
        ValueError: the file is damaged, or an array is missing or another; the message names both.
    """
    return _arrays(lambda begin, size: data[begin : begin + size], len(data), len(data), name, wanted)


def _arrays(
    take: Callable[[int, int], memoryview],
    size: int,
    most: int,
    name: str,
    wanted: dict[str, tuple[str, tuple[int, ...]]],
) -> dict[str, np.ndarray]:
    """Arrays of a file of `size` bytes, parts of which `take` gives; at most `most` are no arrays."""
    length = int.from_bytes(take(0, min(size, _LENGTH_BYTES)), "little")
    first = _LENGTH_BYTES + length
    try:
        if first > most:
            raise ValueError(f"its header has {length} bytes")
        header = json.loads(bytes(take(_LENGTH_BYTES, length)))
        if not isinstance(header, dict):
            raise ValueError("its header is no object")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} is no file of tensors: {error!s:.200}") from error
    body, result = size - first, {}
    for tensor, (dtype, shape) in wanted.items():
        if tensor not in header:
            raise ValueError(f"{name} has no tensor {tensor!r}; it has {', '.join(sorted(header)):.200}")
        held_dtype, held_shape, begin, end = _entry(header[tensor], name, tensor)
        if (held_dtype, held_shape) != (dtype, list(shape)):
            raise ValueError(
                f"{name}: the tensor {tensor!r} is {held_dtype} {held_shape!r:.80}, not {dtype} {list(shape)}"
            )
        needed = math.prod(shape) * numpy_dtype(dtype).itemsize
        if not 0 <= begin <= end <= body or end - begin != needed:
            raise ValueError(
                f"{name} is no file of tensors: {tensor!r} lies at {begin} to {end!r:.80} of {body} bytes, and needs "
                f"{needed}"
            )
        result[tensor] = np.frombuffer(take(first + begin, needed), numpy_dtype(dtype)).reshape(shape)
    return result


def _entry(entry: Any, name: str, tensor: str) -> tuple[str | None, list[int], int, int]:
    """Type, shape, first byte and the one after the last, as a header has them."""
    try:
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        if isinstance(shape, list) and all(type(number) is int for number in [*shape, begin, end]):
            return _DTYPES.get(dtype), shape, begin, end
    except (TypeError, KeyError, ValueError):
        pass
    raise ValueError(f"{name} is no file of tensors: {tensor!r} is {entry!r:.80}")


def shard_tensors(table: manifest.Table, rows: int, planes: Any) -> dict[str, tuple[str, tuple[int, ...]]]:
    """What `decode` is to find in a shard of a table, in some of its planes."""
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {"keys": (table.key_dtype, (rows,))}
    for plane in planes:
        tensors[plane.name] = (plane.dtype, (rows, plane.width))
    return tensors
