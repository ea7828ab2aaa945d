# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables in files of their own: `sok.dump` and `sok.load`, and rows from elsewhere.

`manifest.py` describes the format.
"""

from sok.checkpoint.background import DumpHandle, DumpResult
from sok.checkpoint.imported import load_rows
from sok.checkpoint.models import load_model, save_model
from sok.checkpoint.parquet import load_parquet
from sok.checkpoint.reader import LoadResult, load, read_manifest
from sok.checkpoint.sok2 import load_sok2
from sok.checkpoint.static_export import export_static
from sok.checkpoint.writer import dump

__all__ = [
    "DumpHandle",
    "DumpResult",
    "LoadResult",
    "dump",
    "export_static",
    "load",
    "load_model",
    "load_parquet",
    "load_rows",
    "load_sok2",
    "read_manifest",
    "save_model",
]
