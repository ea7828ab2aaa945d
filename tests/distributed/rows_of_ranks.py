# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables that ranks hold parts of, as one: planes by name, rows by id."""

import numpy as np


def whole(per_rank):
    """Tables of all ranks as one, from each rank's list of them. What two ranks have is equal."""
    merged = []
    for tables in zip(*per_rank, strict=True):
        planes = {}
        for here in tables:
            for plane, rows in here.items():
                known = planes.setdefault(plane, {})
                for id_, row in rows.items():
                    np.testing.assert_array_equal(known.setdefault(id_, row), row)
        merged.append(planes)
    return merged


def assert_equal_tables(actual, expected, **tolerance):
    """Both have one list of tables a rank, of any number of ranks."""
    for mine, theirs in zip(whole(actual), whole(expected), strict=True):
        assert set(mine) == set(theirs)
        for plane in mine:
            assert set(mine[plane]) == set(theirs[plane])
            for id_, row in theirs[plane].items():
                np.testing.assert_allclose(mine[plane][id_], row, err_msg=f"{plane} of {id_}", **tolerance)
