"""How far a prediction of a step on a mesh may be off, and how likely it fits into memory."""

import json
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from simcomm.mesh_search.columns import Array, Meshes
from simcomm.mesh_search.parameters import FITTED

CLASSES = ("data", "tensor", "pipeline", "experts")  # what a mesh has, the last one that it has


class Shipped(NamedTuple):
    """What is fitted to the published runs: parameters, half widths of 80 % by class, memory, the chance to fit."""

    parameters: dict[str, float]
    half_widths: dict[str, float]
    memory: dict[str, float]
    chance: dict[str, float]


@cache
def read_shipped() -> Shipped:
    """Return what `benchmarks/studies/mesh_fit.py --write` has written."""
    found: dict[str, Any] = json.loads(FITTED.read_text(encoding="utf-8"))
    return Shipped(**found)


def classify(m: Meshes) -> Array:
    """Return the number of each training's class: exchanges over data alone, tensors in a node, pipelines, experts."""
    is_far = m.tp > m.node_gpus
    return np.select([m.experts > 0, (m.pp > 1) | is_far | (m.cp > 1), m.tp > 1], [3, 2, 1], 0)


def interval_factors(m: Meshes) -> Array:
    """Return the factor by which each training's step may be longer or shorter, at 80 %."""
    widths = np.array([read_shipped().half_widths[name] for name in CLASSES])
    factors: Array = np.exp(widths[classify(m)])
    return factors


def chance_to_fit(total_bytes: Array, memory_bytes: Array) -> Array:
    """Return how likely what a device keeps fits into its memory: a normal of the logarithm of the filled share."""
    chance = read_shipped().chance
    return np.asarray(ndtr((np.log(chance["fill"]) - np.log(total_bytes / memory_bytes)) / chance["spread"]))
