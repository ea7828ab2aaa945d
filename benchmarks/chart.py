# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""results/*.json as one chart of ratios beside their goals: results/ratios.png."""

import json

import defaults
import matplotlib
import measure

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def rows_of(verb: str) -> list[dict]:
    path = measure.RESULTS / f"{verb}.json"
    return json.loads(path.read_text())["rows"] if path.exists() else []


def ratios() -> list[tuple[str, float, float]]:
    """(what, ratio, goal)"""
    found = []
    for verb, word in (("lookup", "lookup"), ("train_step", "step")):
        for row in rows_of(verb):
            if row["shape"] == "main":
                for kind in ("static", "hash"):
                    goal = defaults.GOALS[f"{kind} {word}"]
                    found.append((f"{kind} {word}, {row['ids']}", row[f"{kind} ratio"], goal))
    for row in rows_of("dlrm_fit"):
        found += [(f"fit, {kind} tables", row[f"{kind} ratio"], defaults.GOALS["fit"]) for kind in ("static", "hash")]
    for row in rows_of("tfra"):
        verb = row["case"].split()[0].rstrip(",")
        goal = defaults.GOALS["insert, TFRA" if verb == "insert" else f"hash {verb}, TFRA"]
        found.append((f"TFRA: {row['case']}", row["ratio"], goal))
    return found


def main() -> None:
    names, values, goals = zip(*reversed(ratios()))
    figure, axes = plt.subplots(figsize=(8, 0.34 * len(names) + 1.2), layout="constrained")
    axes.barh(names, values, color="#4477aa", label="measured")
    axes.plot(goals, names, "|", color="#cc3311", markersize=14, markeredgewidth=2.5, label="goal")
    for name, value in zip(names, values):
        axes.text(value, name, f" {value:.1f}", va="center", fontsize=8)
    axes.set_xscale("log")
    axes.set_xlabel("the peer's time over SOK's (more is better)")
    axes.axvline(1, color="0.5", linewidth=0.8)
    axes.legend(loc="lower right")
    figure.savefig(measure.RESULTS / "ratios.png", dpi=120)


if __name__ == "__main__":
    main()
