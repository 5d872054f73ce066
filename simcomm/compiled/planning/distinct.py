"""Distinct keys numbered in ascending order."""

import numpy as np

from simcomm.compiled.kernel.arrays import Ints, LongInts

AT_ONCE = 1_000_000  # keys that are sorted at a time, which bounds the memory for that


def number_distinct(keys: LongInts, below: int) -> tuple[LongInts, Ints]:
    """Return the distinct keys in ascending order, and for each key its number among them; keys are 0..below - 1."""
    # a larger table over all possible keys takes longer than sorting those that there are
    if below > (1 << 24):
        return _by_sorting(keys)
    number = np.zeros(below, np.int32)
    number[keys] = 1
    distinct = np.flatnonzero(number)
    number[distinct] = np.arange(len(distinct), dtype=np.int32)
    return distinct, number[keys]


def _by_sorting(keys: LongInts) -> tuple[LongInts, Ints]:
    """Return what ``number_distinct`` does, of very many keys range by range."""
    if len(keys) <= AT_ONCE:
        distinct, number = np.unique(keys, return_inverse=True)
        return distinct, number.astype(np.int32)
    some = np.sort(keys[:: len(keys) // AT_ONCE])  # which say where to part all
    some = np.unique(some[:: max(1, AT_ONCE * len(some) // len(keys))])
    bounds = [*some.tolist()[1:], int(keys.max()) + 1]
    found, numbers, before, low = list[LongInts](), np.empty(len(keys), np.int32), 0, 0
    for bound in bounds:
        chosen = np.flatnonzero((keys >= low) & (keys < bound))
        distinct, number = np.unique(keys[chosen], return_inverse=True)
        numbers[chosen] = number + before
        found.append(distinct)
        before, low = before + len(distinct), bound
    return np.concatenate(found), numbers
