# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Results of one GPU as the tables of benchmarks/README.md and a chart of ratios beside their goals.

    report.py NAME     reads results/NAME-stages.jsonl, -keys.jsonl and -fbgemm.txt, writes results/NAME.png
"""

import json
import pathlib
import re
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

RESULTS = pathlib.Path(__file__).parent / "results"
WORKS = {"forward": "fwd", "step sgd": "fwd+bwd+sgd", "step rowwise_adagrad": "fwd+bwd+rowwise_adagrad",
         "step adam": "fwd+bwd+adam"}  # fmt: skip
# Of TBE's time, by case and table; forward, then steps.
GOALS = {
    ("b uniform", "static"): (0.90, 0.85),
    ("b power", "static"): (0.80, 0.85),
    ("b uniform", "hash"): (None, 1.1),
    ("b power", "hash"): (None, 1.1),
}


def json_lines(path: pathlib.Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def peer(path: pathlib.Path) -> dict[tuple[str, str], float]:
    """Kernel times of TBE in ms, by case and what was done."""
    line = re.compile(r"tbe (\w) (\w+)\s+TBE (\S+)\s.*kernel\s+([\d.]+) ms")
    found = (line.match(text) for text in path.read_text().splitlines())
    return {(f"{m[1]} {m[2]}", m[3]): float(m[4]) for m in found if m}


def stages(name: str) -> list[tuple]:
    """(case, work, TBE, static, fraction of copy, hash)"""
    times = {}
    for row in json_lines(RESULTS / f"{name}-stages.jsonl"):
        if "case" in row:
            times[row["case"], row["table"], row["what"]] = row
    tbe = peer(RESULTS / f"{name}-fbgemm.txt")
    rows = []
    for case in dict.fromkeys(key[0] for key in times):
        for work, theirs in WORKS.items():
            static, hashed = (times[case, table, work] for table in ("static", "hash"))
            rows.append((case, work, tbe[case, theirs], static["ms"], static["fraction_of_copy"], hashed["ms"]))
        for extra in ("forward, training", "step rowwise_adagrad, 1 % new"):
            if (case, "hash", extra) in times:
                rows.append((case, extra, None, None, None, times[case, "hash", extra]["ms"]))
    return rows


def print_tables(name: str) -> None:
    print("| case | work | TBE | static | ratio | of copy | hash | ratio to TBE static |")
    print("|---|---|---|---|---|---|---|---|")
    for case, work, tbe, static, fraction, hashed in stages(name):
        if tbe is None:
            print(f"| {case} | {work} | | | | | {hashed:.3f} | |")
            continue
        print(
            f"| {case} | {work} | {tbe:.3f} | {static:.3f} | {static / tbe:.2f} | {fraction:.0%} | {hashed:.3f} | "
            f"{hashed / tbe:.2f} |"
        )
    keys = [row for row in json_lines(RESULTS / f"{name}-keys.jsonl") if row.get("case") == "keys"]
    print("\n| work | width | .50 | .75 | .875 |\n|---|---|---|---|---|")
    for work, width in dict.fromkeys((row["what"], row["width"]) for row in keys):
        rates = (row["gkeys_s"] for row in keys if (row["what"], row["width"]) == (work, width))
        print(f"| {work} | {width} |", *(f"{rate:.2f} |" for rate in rates))


def draw(name: str) -> None:
    bars = []
    for case, work, tbe, static, _, hashed in stages(name):
        for table, ms in (("static", static), ("hash", hashed)):
            if tbe is not None and case.startswith("b") and (table == "static" or work != "forward"):
                goals = GOALS[case, table]
                bars.append((f"{case}, {table}, {work}", ms / tbe, goals[0 if work == "forward" else 1]))
    names, ratios, goals = zip(*reversed(bars))
    figure, axes = plt.subplots(figsize=(8, 0.34 * len(names) + 1.2), layout="constrained")
    reached = [ratio <= goal for ratio, goal in zip(ratios, goals)]
    axes.barh(names, ratios, color=["#4c78a8" if good else "#e45756" for good in reached])
    axes.scatter(goals, names, marker="|", s=160, color="black", label="goal: at most", zorder=3)
    axes.axvline(1, color="gray", linewidth=0.8)
    axes.set_xlabel("time / time of FBGEMM's TBE for the same work on static tables (kernels)")
    axes.legend(loc="lower right")
    figure.savefig(RESULTS / f"{name}.png", dpi=110)


if __name__ == "__main__":
    print_tables(sys.argv[1])
    draw(sys.argv[1])
