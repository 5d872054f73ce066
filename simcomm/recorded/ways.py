"""How a carrier carries the collectives of a recording: each distinct shape and group one *way*."""

from typing import NamedTuple

import numpy as np

from collectives.records.columns import Ints
from simcomm.recorded.calls import ReplayedCalls
from simcomm.recorded.carriers import NetworkCarrier
from simcomm.recorded.templates import Template


class Way(NamedTuple):
    """Collectives that are carried alike: as messages of a template or, without one, inside of a backend."""

    template: Template | None
    seconds: float  # of what goes on inside, from when the last rank has come
    collectives: Ints  # their numbers
    parts: Ints  # [collectives, ranks]: calls


def find_ways(calls: ReplayedCalls, carrier: NetworkCarrier) -> list[Way]:
    """Return the ways of all collectives. Raise InputError for what a carrier cannot carry."""
    pairs = np.stack([calls.shape, calls.group], axis=1)
    distinct, which = np.unique(pairs, axis=0, return_inverse=True)
    kinds: dict[object, tuple[Template | None, float, list[int]]] = {}
    for number, (shape, group) in enumerate(distinct.tolist()):
        asked = calls.shapes[shape], calls.groups[group]
        inside = carrier.seconds_inside(*asked)
        template = carrier.template(*asked) if inside is None else None
        key = id(template) if template is not None else (inside, asked[0].ranks)
        kinds.setdefault(key, (template, inside or 0.0, []))[2].append(number)
    ways = []
    for template, seconds, numbers in kinds.values():
        collectives = np.flatnonzero(np.isin(which.reshape(-1), numbers))
        width = calls.first_part[collectives[0] + 1] - calls.first_part[collectives[0]]
        parts = calls.parts[calls.first_part[collectives][:, None] + np.arange(width)]
        ways.append(Way(template, seconds, collectives, parts))
    return ways
