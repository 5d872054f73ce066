"""The shares that are drawn for a message of every rank at once, the same as ``Trouble.delay`` draws."""

from collections.abc import Callable
from typing import Any

import numpy as np

from simcomm import hashing
from simcomm.jit import entry, inline, source_hash
from simcomm.model import trouble

_hash_next, _to_fraction = inline(hashing.hash_next), inline(hashing.to_fraction)
_place = inline(trouble.step_and_chunk)


def _entry(version: int) -> Callable[..., bool]:
    @entry
    def draw_shares(names: Any, step: int, shift: int, base: int, stride: int, is_shifted: bool, into: Any) -> bool:
        """Write to ``into`` [ranks] a share from 0 to 1 for the message that each rank sends in this step.

        ``names`` [ranks] are the bits of ``Trouble.pair_bits``. Rank r sends chunk
        ``base + (shift + r) % ranks * stride``, or ``base`` unless ``is_shifted``; all numbers are uint64.
        """
        p = np.uint64(len(names))
        for rank in range(len(names)):
            shifted = shift + np.uint64(rank)
            shifted -= p if shifted >= p else np.uint64(0)
            chunk = base + (shifted * stride if is_shifted else np.uint64(0))
            into[rank] = _to_fraction(_hash_next(names[rank], _place(step, chunk)))
        return version >= 0

    return draw_shares


draw_shares = _entry(source_hash(__file__))
