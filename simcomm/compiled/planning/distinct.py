"""Distinct keys numbered in ascending order."""

import numpy as np

from simcomm.compiled.kernel.arrays import Ints, LongInts

MOST_TABLE_ENTRIES = 1 << 24  # where a table over all possible keys would have more, keys are sorted instead


def number_distinct(keys: LongInts, below: int) -> tuple[LongInts, Ints]:
    """Return the distinct keys in ascending order, and for each key its number among them; keys are 0..below - 1."""
    if below > MOST_TABLE_ENTRIES:
        distinct, numbers = np.unique(keys, return_inverse=True)
        return distinct, numbers.astype(np.int32)
    number = np.zeros(below, np.int32)
    number[keys] = 1
    distinct = np.flatnonzero(number)
    number[distinct] = np.arange(len(distinct), dtype=np.int32)
    return distinct, number[keys]
