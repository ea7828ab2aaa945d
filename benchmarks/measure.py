# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks share: batches of ids, timing in turns, results as JSON and as a table."""

import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

import defaults
import numpy as np

RESULTS = pathlib.Path(__file__).parent / "results"


def draw(distribution: str, rows: int, count: int, *key: int) -> np.ndarray:
    """int64 [count] of [0, rows); the same for the same key everywhere."""
    random = np.random.default_rng([defaults.SEED, rows, *key])
    if distribution == "uniform":
        return random.integers(0, rows, count)
    # The inverse of the continuous distribution whose density falls like rank^-ZIPF.
    exponent = 1.0 - defaults.ZIPF
    low, high = 1.0, float(rows + 1) ** exponent
    ranks = (low + random.random(count) * (high - low)) ** (1.0 / exponent)
    ranks = np.minimum(ranks.astype(np.int64) - 1, rows - 1)
    return ranks * 2654435761 % rows  # a prime: coprime to any number of rows used here


def batches(distribution: str, shape: defaults.Shape) -> list[list[np.ndarray]]:
    """[batch][table], int64 [bags, hotness] each."""
    return [
        [
            draw(distribution, shape.rows, shape.bags * shape.hotness, number, table).reshape(shape.bags, shape.hotness)
            for table in range(shape.tables)
        ]
        for number in range(defaults.BATCHES)
    ]


def in_turns(
    functions: dict[str, Callable[[int], Any]], repeats: int = defaults.REPEATS, warm_up: int = defaults.BATCHES
) -> dict[str, float]:
    """Milliseconds, the least over all repeats. Each function is called with the repeat's number."""
    for function in functions.values():
        for number in range(warm_up):
            function(number)
    least = dict.fromkeys(functions, float("inf"))
    for number in range(repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            function(number)
            least[name] = min(least[name], 1e3 * (time.perf_counter() - start))
    return least


def machine() -> dict[str, Any]:
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return {
        "cpu": cpu.group(1) if cpu else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "date": datetime.date.today().isoformat(),
    }


def save(verb: str, rows: Sequence[dict[str, Any]], **versions: str) -> None:
    """Prints rows as a table, and writes them to results/<verb>.json."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    cells = [[_text(row.get(name, "")) for name in columns] for row in rows]
    widths = [max(len(line[i]) for line in [columns, *cells]) for i in range(len(columns))]
    for line in [columns, *cells]:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths)))
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{verb}.json"
    result = {"verb": verb, "machine": machine() | versions, "rows": list(rows)}
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(f"-> {path}")


def _text(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def arguments(description: str, **choices: Sequence[str]) -> argparse.Namespace:
    """Command line: --repeats, and for each choice a list of which ones to measure (all by default)."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--repeats", type=int, default=defaults.REPEATS)
    for name, values in choices.items():
        parser.add_argument(f"--{name}", nargs="*", choices=values, default=list(values))
    return parser.parse_args()
