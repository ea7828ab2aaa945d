# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Keras models whose tables lie beside their file."""

import os
import re
import secrets
import shutil
from pathlib import Path

import keras
import tensorflow as tf

from sok import comm
from sok.checkpoint import files
from sok.checkpoint.agreement import Agreement
from sok.checkpoint.reader import load
from sok.checkpoint.writer import dump
from sok.layers import beside
from sok.layers.mixin import TableMixin
from sok.table_variable import TableVariable


def save_model(model, filepath, *, progress=None) -> None:
    """Writes a Keras model to a `.keras` file, and its tables into a dump beside it.

    For tables that are large, or on several ranks: every rank must call it, and writes the rows that it keeps;
    rank 0 writes the file. What was saved there before stays whole until the new file takes its place.

    Args:
        model: a Keras model with the library's layers (or layers that derive from `sok.layers.TableMixin`).
        filepath: ends with ".keras"; the tables are in a folder "<filepath>.tables-…".
        progress: as for `sok.dump`.

    Raises:
        ValueError: another name, or a model without tables.

    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/m.keras"
    >>> model = keras.Sequential([keras.Input((2,), dtype="int64"), sok.layers.DistributedEmbedding(4)])
    >>> sok.save_model(model, path)
    >>> sok.load_model(path).layers[0].table.size
    [0, 4]
    """
    path = _path(filepath)
    if not isinstance(model, keras.Model):
        raise TypeError(f"model must be a Keras model, got {model!r:.120}")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: filepath must be the name of a file")
    tables = _tables_of(model)
    if not tables:
        raise ValueError(f"the model {model.name!r} has no tables: use model.save")
    communicator = comm.current()
    token = secrets.randbits(62)
    if communicator.size > 1:
        token = int(communicator.broadcast(tf.constant([token], tf.int64), 0, "save_model")[0])
    dump(_folder(path, token), tables, progress=progress)
    with Agreement(communicator).step():
        if communicator.rank == 0:
            new = path.with_name(f".new-{path.name}")
            with beside.using(beside.Beside(token, tables)):
                model.save(new)
            files.sync(new)
            os.replace(new, path)
            files.sync(path.parent)
            for folder in path.parent.iterdir():
                if _is_folder_of(path, folder.name) and folder != _folder(path, token):
                    shutil.rmtree(folder)


def load_model(filepath, *, custom_objects=None, compile=True, progress=None):  # noqa: A002  Keras's name
    """The model that `sok.save_model` wrote, on any number of ranks: every rank must call it.

    Args:
        filepath, progress: as for `save_model`.
        custom_objects, compile: as for `keras.models.load_model`.

    Raises:
        ValueError: the file or its tables are damaged, or the file is missing.
        FileNotFoundError: the folder with the tables is not beside the file.

    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/m.keras"
    >>> model = keras.Sequential([keras.Input((2,), dtype="int64"), sok.layers.DistributedEmbedding(4)])
    >>> sok.save_model(model, path)
    >>> sok.load_model(path).layers[0].table.dimension
    4
    """
    path = _path(filepath)
    with Agreement(comm.current()).step():
        with beside.using(beside.Beside()) as found:
            model = keras.models.load_model(path, custom_objects=custom_objects, compile=compile)
        folder = None if found.token is None else _folder(path, found.token)
        if folder is not None and not folder.is_dir():
            raise FileNotFoundError(
                f"{path} has its tables in a folder {folder.name}, which is not beside it: move or copy that folder "
                f"from where the model was saved to {folder.parent}, under this name"
            )
    if folder is not None:
        load(folder, found.tables, progress=progress)
    return model


def _tables_of(model: keras.Model) -> dict[str, TableVariable]:
    """All tables, under names that differ where those of layers do not."""
    tables: dict[str, TableVariable] = {}
    for layer in model._flatten_layers():
        if not isinstance(layer, TableMixin):
            continue
        for label, table in layer._labelled_tables().items():
            name, same = f"{layer.name}/{label}", 0
            while name in tables:
                same += 1
                name = f"{layer.name}_{same}/{label}"
            tables[name] = table
    return tables


def _path(filepath) -> Path:
    if not isinstance(filepath, (str, os.PathLike)):
        raise TypeError(f"filepath must be a string or a Path, got {filepath!r:.120}")
    path = Path(filepath)
    if path.suffix != ".keras":
        raise ValueError(f"filepath must end with .keras, got {str(path)!r}")
    return path


def _folder(path: Path, token: int) -> Path:
    return path.with_name(f"{path.name}.tables-{token:016x}")


def _is_folder_of(path: Path, name: str) -> bool:
    return re.fullmatch(re.escape(path.name) + r"\.tables-[0-9a-f]{16}", name) is not None
