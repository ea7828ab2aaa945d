# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Every notebook runs from its first cell to its last, and shows what its text says."""

import os
import pathlib

import nbclient
import nbformat
import pytest

ROOT = pathlib.Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def _execute(path, monkeypatch):
    known = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{known}")
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(path.parent)}}).execute()
    return notebook


def _outputs(notebook):
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path, monkeypatch):
    outputs = _outputs(_execute(path, monkeypatch))
    text = "".join(output.get("text", "") for output in outputs if output.output_type == "stream")
    plots = [output for output in outputs if "image/png" in output.get("data", {})]
    assert plots
    if path.stem == "quickstart":
        assert "the same predictions, bit for bit: True" in text
        assert "people    300 rows" in text
        assert "people after it: 300" in text
        auc = float(text.split("val_auc: ")[-1].split(" ")[0])
        assert auc > 0.85


def test_notebooks_are_kept_without_outputs():
    """So that a difference between two versions is one of the text and the code."""
    assert [path.stem for path in NOTEBOOKS]
    for path in NOTEBOOKS:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        assert not _outputs(notebook)
        assert all(cell.get("execution_count") is None for cell in notebook.cells)
