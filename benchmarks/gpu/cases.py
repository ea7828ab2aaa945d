# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes the batches of a case for the native benchmark: cases.py IDS_MODULE_DIR CASE DIST FILE."""

import sys

import numpy as np

BATCHES = 8


def main(folder: str, case: str, dist: str, path: str) -> None:
    sys.path.insert(0, folder)
    import ids

    c = ids.CASES[case]
    each, extra = divmod(c["ids"], c["batch"])
    with open(path, "wb") as out:
        np.array(
            [c["tables"], c["rows"], c["dim"], c["batch"], BATCHES, 0 if extra else each], np.int64
        ).tofile(out)
        for k in range(BATCHES):
            batch = ids.batch(case, dist, k)
            np.array([ids.unique_rows(batch)], np.float64).tofile(out)
            for values, lengths in batch:
                np.array([len(values)], np.int64).tofile(out)
                values.astype(np.int64).tofile(out)
                np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64).tofile(out)


main(*sys.argv[1:])
