# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Files of tensors, through the safetensors library: from arrays to bytes, and back."""

from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
import tensorflow as tf
import xxhash

from sok.checkpoint import manifest

# Of a shard's rows. Small, since several are in memory at once while they travel, and since malloc keeps blocks
# of up to 32 MB for the next shard: fresh pages for each cost more than the rest of a dump.
SHARD_BYTES = 8 << 20
# Larger ones where a rank would have more files of a table than this, up to a limit.
_MANY_FILES = 10_000
MOST_SHARD_BYTES = 64 << 20


def rows_a_shard(row_bytes: int, rows: int) -> int:
    size = min(max(SHARD_BYTES, rows * row_bytes // _MANY_FILES), MOST_SHARD_BYTES)
    return max(8, size // row_bytes)


def encode(arrays: dict[str, np.ndarray]) -> bytes:
    """A file of some arrays of TensorFlow's types."""
    return safetensors.numpy.save({name: np.asarray(array, order="C") for name, array in arrays.items()})


# safetensors's names of types.
_DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32",
    "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
}  # fmt: skip


def verify(path: Path, name: str, expected: manifest.Shard) -> None:
    """Refuses a file that is not the one that was written.

    Raises:
        ValueError: its size or its checksum is another; the message names it.
    """
    digest = xxhash.xxh3_64()
    left = expected.bytes
    piece = bytearray(min(left, 4 << 20))
    with path.open("rb", buffering=0) as file:
        while left > 0:
            size = file.readinto(memoryview(piece)[: min(left, len(piece))])
            if not size:
                break
            digest.update(memoryview(piece)[:size])
            left -= size
        if left or file.read(1):
            raise ValueError(f"{name} has not {expected.bytes} bytes, as the manifest says: it was cut or changed")
    if digest.hexdigest() != expected.checksum:
        raise ValueError(f"{name}: its checksum does not fit: the file has changed since it was written")


def decode(
    path: Path, name: str, wanted: dict[str, tuple[str, tuple[int, ...]]], read: tuple[str, ...] | None = None
) -> dict[str, np.ndarray]:
    """Arrays of a file.

    Args:
        wanted: dtypes and shapes that must be there.
        read: those to read; None: all of these.

    Raises:
        ValueError: the file is damaged, or an array is missing or another; the message names both.
    """
    result = {}
    try:
        with safetensors.safe_open(path, framework="np") as file:
            held = set(file.keys())
            for tensor, (dtype, shape) in wanted.items():
                if tensor not in held:
                    raise ValueError(f"{name} has no tensor {tensor!r}; it has {', '.join(sorted(held))}")
                part = file.get_slice(tensor)
                found = _DTYPES.get(part.get_dtype()), tuple(part.get_shape())
                if found != (dtype, shape):
                    raise ValueError(
                        f"{name}: the tensor {tensor!r} is {found[0]} {list(found[1])}, not {dtype} {list(shape)}"
                    )
                if read is None or tensor in read:
                    result[tensor] = file.get_tensor(tensor)
    except safetensors.SafetensorError as error:
        raise ValueError(f"{name} is no file of tensors: {error}") from error
    return result


def shard_tensors(table: manifest.Table, rows: int, planes: Any) -> dict[str, tuple[str, tuple[int, ...]]]:
    """What `decode` is to find in a shard of a table, in some of its planes."""
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {"keys": (table.key_dtype, (rows,))}
    for plane in planes:
        tensors[plane.name] = (plane.dtype, (rows, plane.width))
    return tensors


def as_dtype(array: np.ndarray, dtype: str) -> np.ndarray:
    """float32 values in the type of the rows."""
    return array if dtype == array.dtype.name else array.astype(tf.as_dtype(dtype).as_numpy_dtype)
