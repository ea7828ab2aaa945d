# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Counters of tables."""

from sok.variables import TableVariable


def stats(*variables: TableVariable) -> dict[str, dict[str, float]]:
    """What tables hold and have done, by the name of the table ("items", "items_1" if two share it).

    rows, row_limit (rows that fit before the index grows), bytes (memory of index, rows and states),
    inserted, erased, index_growths; load_factor (of the index), groups_per_find (groups of 16 slots
    read to find a key that is there, on average; 1 is the least).

    >>> table = sok.DynamicVariable(4, name="items")
    >>> _ = sok.lookup_sparse(table, tf.constant([3, 4]))
    >>> sok.stats(table)["items"]["rows"]
    2
    """
    result: dict[str, dict[str, float]] = {}
    for variable in variables:
        counters: dict[str, float] = dict(variable.table.stats())
        slots = counters["index_slots"]
        reads = counters.pop("groups_read_to_find_all")
        counters["load_factor"] = counters["rows"] / slots if slots else 0.0
        counters["groups_per_find"] = reads / counters["rows"] if slots and counters["rows"] else 0.0
        name, same = variable.name, 0
        while name in result:
            same += 1
            name = f"{variable.name}_{same}"
        result[name] = counters
    return result
