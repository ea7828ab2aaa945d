# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Trains a DLRM on MovieLens-100K from raw 64-bit ids: what `make demo` runs.

Example:
    python -m sok.models.movielens_demo --seed 1 --output build/demo

It leaves `model.keras`, `learning_curve.png` and `metrics.json` in the output folder. Afterwards a
second process loads the model and must find the same validation AUC.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import keras
import tensorflow as tf

import sok
from sok.data import movielens
from sok.models.dlrm import DLRM, distributed_embeddings

DIMENSION = 16
BATCH_SIZE = 512
EVALUATION_BATCH_SIZE = 4096
EPOCHS = 12
# Between the two processes: float sums may round otherwise, and nothing else may differ.
AUC_TOLERANCE = 1e-6


def make_optimizer(name: str) -> keras.optimizers.Optimizer:
    """The wrapped optimizer "adagrad" or "sgd", with the learning rate found for this data set."""
    if name == "sgd":
        return sok.OptimizerWrapper(keras.optimizers.SGD(1.0))
    if name == "adagrad":
        # The squared gradients of a user's row add up to about 1e-3 over the whole training. The
        # initial accumulator of Keras, 0.1, would drown them: Adagrad would act as a slow SGD.
        return sok.OptimizerWrapper(keras.optimizers.Adagrad(0.05, initial_accumulator_value=1e-3))
    raise ValueError(f'optimizer must be "adagrad" or "sgd", got {name!r}')


def make_model(seed: int) -> DLRM:
    """An untrained DLRM with an empty hash table for each of `movielens.FEATURES`."""
    tables = distributed_embeddings(movielens.FEATURES, DIMENSION, seed=seed)
    return DLRM(tables, top_units=(64, 32), dropout=0.3, name="dlrm")


def train(
    seed: int,
    epochs: int = EPOCHS,
    optimizer: str = "adagrad",
    verbose: int | str = "auto",
) -> tuple[DLRM, dict[str, list[float]], tf.data.Dataset]:
    """(model, history, validation data): the history has "loss", "auc", "val_loss" and "val_auc",
    one number for each epoch.

    On several ranks each trains on its own batches, so much smaller that together they are as large as
    on one; validation is the same on all.
    """
    ranks = sok.init().size
    keras.utils.set_random_seed(seed)
    training, validation = movielens.split(movielens.load(), seed)
    held_out = validation.dataset(EVALUATION_BATCH_SIZE)
    model = make_model(seed)
    model.compile(
        optimizer=make_optimizer(optimizer),
        loss=keras.losses.BinaryCrossentropy(),
        metrics=[keras.metrics.AUC(name="auc")],
    )
    # The dataset shuffles by itself; Keras's default, shuffle=True, would only warn that it cannot.
    batches = training.dataset(BATCH_SIZE // ranks, shuffle_seed=seed)
    if ranks > 1:
        # As many batches on each rank: nobody may wait for one that does not come.
        batches = batches.take(int(batches.cardinality()) // ranks * ranks).shard(ranks, sok.rank())
    history = model.fit(
        batches,
        validation_data=held_out,
        epochs=epochs,
        shuffle=False,
        verbose=verbose if sok.rank() == 0 else 0,
        callbacks=[sok.comm.BroadcastVariables()],
    )
    return model, history.history, held_out


def describe_tables(model: DLRM) -> str:
    """A line for each table: its name, rows, width, and the bytes of its rows (float32)."""
    lines = [f"{'table':<12}{'rows':>8}{'dim':>6}{'bytes':>12}"]
    for layer in model.embeddings.values():
        rows, dimension = (int(number) for number in layer.table.size)
        lines.append(f"{layer.name:<12}{rows:>8,}{dimension:>6}{4 * rows * dimension:>12,}")
    return "\n".join(lines)


def plot(history: Mapping[str, Sequence[float]], path: Path) -> None:
    """Draws loss and AUC over the epochs, for training and validation, into a PNG file."""
    # Here and not above: only this function needs Matplotlib, which sok does not depend on.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.5), layout="constrained")
    FigureCanvasAgg(figure)
    epochs = range(1, len(history["loss"]) + 1)
    for axes, key, title in zip(
        figure.subplots(1, 2), ("loss", "auc"), ("binary cross-entropy", "AUC"), strict=True
    ):
        axes.plot(epochs, history[key], marker=".", label="training (with dropout)")
        axes.plot(epochs, history[f"val_{key}"], marker=".", label="validation")
        axes.set(title=title, xlabel="epoch")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
        axes.legend()
    figure.suptitle("DLRM on MovieLens-100K, raw ids through hash tables")
    figure.savefig(path, dpi=120)


def evaluate(folder: Path, seed: int) -> int:
    """Loads the saved model and compares its AUC with the one that was written down beside it.

    Returns:
        the exit status: 0 where both agree.
    """
    expected = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))["val_auc"]
    model = keras.saving.load_model(folder / "model.keras")
    _, validation = movielens.split(movielens.load(), seed)
    found = model.evaluate(validation.dataset(EVALUATION_BATCH_SIZE), verbose=0, return_dict=True)[
        "auc"
    ]
    same = abs(found - expected) <= AUC_TOLERANCE
    verdict = "the same as" if same else "NOT the same as"
    print(
        f"Process {os.getpid()} loaded model.keras: validation AUC {found:.6f}, {verdict} "
        f"{expected:.6f} before."
    )
    return 0 if same else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m sok.models.movielens_demo", description=__doc__.split("\n")[0]
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="of the split, the order and the initial values"
    )
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--output", type=Path, default=Path("build/demo"), metavar="DIR")
    parser.add_argument("--optimizer", choices=("adagrad", "sgd"), default="adagrad")
    parser.add_argument(
        "--evaluate", type=Path, metavar="DIR", help="only evaluate the model saved there"
    )
    options = parser.parse_args(arguments)
    if options.evaluate:
        return evaluate(options.evaluate, options.seed)

    start = time.perf_counter()
    model, history, validation = train(options.seed, options.epochs, options.optimizer)
    seconds = time.perf_counter() - start
    metrics = model.evaluate(validation, verbose=0, return_dict=True)
    print(
        f"\nTrained {options.epochs} epochs in {seconds:.0f} s: "
        f"validation AUC {metrics['auc']:.6f}\n"
    )
    print(describe_tables(model), end="\n\n", flush=True)

    options.output.mkdir(parents=True, exist_ok=True)
    plot(history, options.output / "learning_curve.png")
    model.save(options.output / "model.keras")
    record = {
        "seed": options.seed,
        "optimizer": options.optimizer,
        "val_auc": metrics["auc"],
        "history": history,
    }
    (options.output / "metrics.json").write_text(json.dumps(record, indent=1), encoding="utf-8")
    print(f"Wrote model.keras, learning_curve.png and metrics.json to {options.output}", flush=True)

    command = [sys.executable, "-m", "sok.models.movielens_demo"]
    command += ["--evaluate", str(options.output), "--seed", str(options.seed)]
    # TensorFlow's start-up messages would hide the one line that this process prints.
    environment = {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ}
    return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
