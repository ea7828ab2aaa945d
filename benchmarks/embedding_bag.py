# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lookups of dense ids beside torch.nn.EmbeddingBag, in one process; needs torch."""

import importlib.util
import os

import defaults
import measure
import tables
from lookup import sok_lookup


def torch_lookup(batches: tables.Batches, values):
    """A function of the repeat's number, and torch's version."""
    # Its threads would otherwise spin for a while after each call, on the cores of whoever is next.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import torch

    torch.set_num_threads(measure.machine()["cores"])
    bag = torch.nn.EmbeddingBag.from_pretrained(torch.from_numpy(values), mode="sum")
    ids = [torch.from_numpy(dense.numpy()) for dense in batches.dense]

    def lookup(number):
        with torch.no_grad():
            return bag(ids[number % len(ids)])

    return lookup, torch.__version__


def main() -> None:
    if importlib.util.find_spec("torch") is None:
        print("torch is not installed: torch.nn.EmbeddingBag is left out")
        return
    shapes = [name for name, shape in defaults.SHAPES.items() if shape.tables == 1]
    chosen = measure.arguments(__doc__, shapes=shapes, ids=defaults.DISTRIBUTIONS)
    rows = []
    for name in chosen.shapes:
        for ids in chosen.ids:
            shape = defaults.SHAPES[name]
            batches = tables.Batches(ids, shape)
            static, hashed = tables.static(shape), tables.hashed(shape)
            torch, version = torch_lookup(batches, static.numpy().state["values"])
            functions = {
                "torch": torch,
                "static": batches.each(sok_lookup(static, False), "dense"),
                "hash": batches.each(sok_lookup(hashed, False), "dense"),
            }
            times = measure.in_turns(functions, chosen.repeats)
            ratios = {f"{kind} ratio": times["torch"] / times[kind] for kind in ("static", "hash")}
            rows.append({"shape": name, "ids": ids, **times, **ratios})
    measure.save("embedding_bag", rows, **tables.VERSIONS, torch=version)


if __name__ == "__main__":
    main()
