# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""MovieLens-100K as raw 64-bit ids: 100,000 ratings by 943 users of 1,682 films.

The three text files come from the PyPI wheel of RecBole, which carries them as an example. No
vocabulary is built: numbers stay what they are, and words become the hash that `stable_id` gives,
whatever else the data set holds.

Example:
    train, validation = split(load(), seed=1)
    model.fit(train.dataset(512, shuffle_seed=1), validation_data=validation.dataset(4096))
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

WHEEL = "recbole==1.2.1"
WHEEL_SHA256 = "9c9948202011f37eb0a7c6768129313f00d6403ad221ec940d5e2d5d5f33a407"
FOLDER = "recbole/dataset_example/ml-100k/"
FILES = {
    "ml-100k.inter": "4edb74e2a81178c2ba9ff381495f754f996c4aea351b1272ca36b43da0935eff",
    "ml-100k.item": "51d7cdf777ce5c0f5b32c1d947a4a81fe07d75e78abbe761e0cd4d0756064532",
    "ml-100k.user": "4f670007d9cfbeb9807e757209af1555b9bcc186bde25e767f67cb67c6dd5972",
}

SINGLE_FEATURES = ("user", "item", "age", "gender", "occupation", "zip_code")
FEATURES = (*SINGLE_FEATURES, "genres")


def stable_id(text: str) -> int:
    """The id of a word: 64 bits of BLAKE2b, signed, the same on every machine and in every run."""
    digest = hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


@dataclass(frozen=True)
class Ratings:
    """Some ratings, one a row.

    Attributes:
        ids: for each of `SINGLE_FEATURES`, int64 [rows].
        genres: int64 [number of ids], the film's 1 to 6 genres, row after row.
        genre_splits: int64 [rows + 1], where each row of `genres` begins and ends.
        labels: float32 [rows], 1 for a rating of 4 or 5.
    """

    ids: Mapping[str, np.ndarray]
    genres: np.ndarray
    genre_splits: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def features(self) -> dict[str, tf.Tensor | tf.RaggedTensor]:
        """What a model is called with: int64 [rows] for each single feature, and the genres as
        int64 RaggedTensor [rows, None]."""
        tensors: dict[str, tf.Tensor | tf.RaggedTensor] = {
            name: tf.constant(column) for name, column in self.ids.items()
        }
        # validate=False: the splits were made here, and the check would put asserts into the graph.
        tensors["genres"] = tf.RaggedTensor.from_row_splits(
            self.genres, self.genre_splits, validate=False
        )
        return tensors

    def dataset(self, batch_size: int, shuffle_seed: int | None = None) -> tf.data.Dataset:
        """Batches (features, labels [batch] float32), the last one partial.

        Args:
            batch_size: rows in a batch.
            shuffle_seed: a number shuffles anew in each epoch, the same way in each run; None keeps
                the order.
        """
        features, labels = self.features(), tf.constant(self.labels)
        rows = tf.data.Dataset.range(len(self))
        if shuffle_seed is not None:
            rows = rows.shuffle(len(self), seed=shuffle_seed)

        # Row numbers are shuffled and whole batches gathered: far cheaper than a dataset of rows.
        def gather(batch: tf.Tensor):
            return {name: tf.gather(column, batch) for name, column in features.items()}, tf.gather(
                labels, batch
            )

        return rows.batch(batch_size).map(gather, num_parallel_calls=1).prefetch(2)

    def take(self, rows: np.ndarray) -> Ratings:
        """The given rows (int64 [n]), in that order."""
        genres, splits = _take_bags(self.genres, self.genre_splits, rows)
        ids = {name: column[rows] for name, column in self.ids.items()}
        return Ratings(ids, genres, splits, self.labels[rows])


def cache_folder() -> Path:
    """Where downloads are kept: `$SOK_CACHE`, else `~/.cache/sok`."""
    return Path(os.environ.get("SOK_CACHE") or Path.home() / ".cache" / "sok")


def download() -> Path:
    """The folder with the three files of `FILES`, fetched by pip unless they are there already."""
    folder = cache_folder() / "ml-100k"
    if all(
        (folder / name).is_file() and _sha256(folder / name) == digest
        for name, digest in FILES.items()
    ):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    # The temporary folder lies inside the cache, so that the final moves are atomic renames and a
    # second process that downloads at the same time does no harm.
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
        ]
        command += ["--no-deps", "--only-binary=:all:", "--dest", temporary, WHEEL]
        subprocess.run(command, check=True)
        (wheel,) = Path(temporary).glob("*.whl")
        _check(wheel, WHEEL_SHA256)
        with zipfile.ZipFile(wheel) as archive:
            for name, digest in FILES.items():
                extracted = Path(archive.extract(FOLDER + name, temporary))
                _check(extracted, digest)
                extracted.replace(folder / name)
    return folder


def load() -> Ratings:
    """All 100,000 ratings, in the order of the file; downloads on first use."""
    folder = download()
    users = {
        int(user): (int(age), stable_id(gender), stable_id(occupation), stable_id(zip_code))
        for user, age, gender, occupation, zip_code in _lines(folder / "ml-100k.user")
    }
    genres = {
        int(item): [stable_id(word) for word in words.split()]
        for item, _, _, words in _lines(folder / "ml-100k.item")
    }
    columns = [
        (int(user), int(item), float(rating))
        for user, item, rating, _ in _lines(folder / "ml-100k.inter")
    ]
    user = np.array([row[0] for row in columns], np.int64)
    item = np.array([row[1] for row in columns], np.int64)
    profile = np.array([users[row[0]] for row in columns], np.int64)
    bags = [genres[row[1]] for row in columns]
    ids = dict(zip(SINGLE_FEATURES, (user, item, *profile.T.copy()), strict=True))
    splits = np.concatenate([[0], np.cumsum([len(bag) for bag in bags])]).astype(np.int64)
    labels = np.array([row[2] >= 4 for row in columns], np.float32)
    return Ratings(ids, np.concatenate(bags).astype(np.int64), splits, labels)


def split(ratings: Ratings, seed: int, validation: float = 0.2) -> tuple[Ratings, Ratings]:
    """(training, validation): a random part `validation` of the rows, chosen by `seed`, is held
    out."""
    order = np.random.default_rng(seed).permutation(len(ratings))
    held_out = round(len(ratings) * validation)
    return ratings.take(order[held_out:]), ratings.take(order[:held_out])


def permute_ids(ratings: Ratings, seed: int, features: Sequence[str] = FEATURES) -> Ratings:
    """The same ratings with each of the named id columns permuted over the rows on its own.

    What a model still predicts from these, it has not learned from the ids of those columns.
    """
    unknown = set(features) - set(FEATURES)
    if unknown:
        raise ValueError(f"features must be among {FEATURES}, got {sorted(unknown)}")
    generator = np.random.default_rng(seed)
    ids = {
        n: generator.permutation(column) if n in features else column
        for n, column in ratings.ids.items()
    }
    bags = ratings.genres, ratings.genre_splits
    if "genres" in features:
        bags = _take_bags(*bags, generator.permutation(len(ratings)))
    return Ratings(ids, *bags, ratings.labels)


def _take_bags(
    values: np.ndarray, splits: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(values, splits) of the bags `rows` of a ragged array, without a loop over rows."""
    lengths = np.diff(splits)[rows]
    new_splits = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    shift = np.repeat(splits[rows] - new_splits[:-1], lengths)
    return values[np.arange(new_splits[-1]) + shift], new_splits


def _lines(path: Path) -> Iterator[list[str]]:
    """The fields of each line below the heading."""
    with path.open(encoding="utf-8") as file:
        next(file)
        for line in file:
            yield line.rstrip("\n").split("\t")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _check(path: Path, expected: str) -> None:
    """Raises ValueError unless the file has the hash that this reader was written for."""
    found = _sha256(path)
    if found != expected:
        raise ValueError(
            f"{path.name} has sha256 {found}, wanted {expected}: this reader does not know the file"
        )
