"""The share that is drawn for a message of every rank at once, as ``Trouble.delay`` draws it."""

from collections.abc import Callable
from typing import Any

import numpy as np

from simcomm import hashing
from simcomm.compiled.kernel.jit import entry, inner, sources
from simcomm.model import trouble

_extend, _share, _place = inner(hashing.extend), inner(hashing.share), inner(trouble.step_and_chunk)


def _entry(version: int) -> Callable[..., bool]:
    @entry
    def draw(ways: Any, step: int, turn: int, plus: int, turns: bool, into: Any) -> bool:
        """``into`` [ranks] holds a share for the message of this step that goes each of these ways.

        Rank r sends chunk ``plus + (turn + r) % ranks``, or only ``plus``; all numbers are without sign.
        """
        p = np.uint64(len(ways))
        for rank in range(len(ways)):
            turned = turn + np.uint64(rank)
            turned -= p if turned >= p else np.uint64(0)
            chunk = plus + (turned if turns else np.uint64(0))
            into[rank] = _share(_extend(ways[rank], _place(step, chunk)))
        return version >= 0

    return draw


draw = _entry(sources())
