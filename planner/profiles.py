"""Convert profiles to columns: their units, gradient buckets, stages and sizes."""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from collectives.records.model_profile import ModelProfile
from collectives.training.gradients import BUCKET_BYTES, FIRST_BYTES, fill_buckets
from planner.hosts import Array
from planner.jobs import EXCHANGES
from planner.rates import Compute
from planner.stages import cut_stages

OVERLAPPED = EXCHANGES.index("overlapped")
MIB = 1 << 20
SIZES = ("parameters", "saved_elements", "written_elements", "largest")
# Arrays with a second dimension, by the meaning of its index.
UNIT = ("unit_forward", "unit_backward", "unit_parameters")
BUCKET = ("bucket_share", "bucket_ready")
STAGE = ("stage_forward", "stage_backward", "stage_parameters", "stage_bytes")


def add_profiles(c: dict[str, Array], profiles: Sequence[ModelProfile | None], times: Sequence[Compute | None]) -> None:
    """Add the units, buckets, stages and sizes of profiles to columns.

    A transformer has one unit, its layer, repeated ``layers`` times.
    """
    is_gathered, is_shaped = bool((c["zero"] == 3).any()), c["is_shaped"]
    _add(c, UNIT, _each(_units, profiles, times, np.full(len(profiles), is_gathered)))
    c["unit_count"] = (c["unit_forward"] > 0).astype(float)
    c["unit_count"][is_shaped, 0] = c["layers"][is_shaped]
    sizes = _each(_sizes, profiles, times)
    _add(c, SIZES, sizes)
    c.update({name: c[name][:, 0] for name in SIZES})
    is_overlapped = c["exchange"] == OVERLAPPED
    _add(c, BUCKET, _each(_buckets, profiles, times, c["gradient_bytes"], c["bucket_mb"], is_overlapped), least=2)
    c["is_bucket"] = c["bucket_share"] > 0
    c["is_bucket"][is_shaped, :2] = True  # the first and the last bucket of a transformer
    c["bucket_ready"][~c["is_bucket"] | is_shaped[:, None]] = 1.0
    _add(c, STAGE, _each(_stages, profiles, times, np.where(c["pp"] > 1, c["pp"] * c["vp"], 0)))
    c["stage_bytes"] *= c["item_bytes"][:, None]
    for row in np.flatnonzero(~is_shaped & (c["pp"] > 1)):  # for a profile, these columns are shares of its parameters
        devices, stages = int(c["pp"][row]), int(c["pp"][row] * c["vp"][row])
        shares = c["stage_parameters"][row, :stages].reshape(-1, devices).sum(axis=0) / c["parameters"][row]
        c["most_layers"][row], c["first_layers"][row], c["last_layers"][row] = shares.max(), shares[0], shares[-1]


def _each(
    function: Callable[..., Array],
    profiles: Sequence[ModelProfile | None],
    times: Sequence[Compute | None],
    *columns: Array,
) -> list[Array | None]:
    """Return ``function``'s array for each training run; None without a profile. Equal arguments are computed once."""
    if not any(profiles):
        return [None] * len(profiles)
    rows, known = zip(profiles, times, *(column.tolist() for column in columns), strict=True), dict[Any, Array]()
    arrays = list[Array | None]()
    for profile, timed, *values in rows:
        key = (id(profile), id(timed), *values)
        if profile is not None and key not in known:
            known[key] = function(profile, timed, *values)
        arrays.append(known.get(key))
    return arrays


def _add(c: dict[str, Array], names: Sequence[str], values: Sequence[Array | None], least: int = 1) -> None:
    """Add named arrays to the columns. Rows with fewer values are padded with zeros."""
    width = max([least, *(value.shape[1] for value in values if value is not None)])
    arrays = np.zeros((len(names), len(values), width))
    for row, value in enumerate(values):
        if value is not None:
            arrays[:, row, : value.shape[1]] = value
    c.update(zip(names, arrays, strict=True))


def _sizes(profile: ModelProfile, _: Compute | None) -> Array:
    saved = sum(layer.saved_bytes for layer in profile.layers) / profile.item_bytes
    written = sum(block.output_bytes for block in profile.blocks) / profile.item_bytes
    return np.array([[profile.parameters], [saved], [written], [max(layer.parameters for layer in profile.layers)]])


def _shares(profile: ModelProfile, timed: Compute | None) -> tuple[list[float], list[float]]:
    """Return each layer's share of the compute time, forward and backward."""
    forward, backward = (profile.work(is_backward=is_backward) for is_backward in (False, True))
    if timed is not None:
        forward, backward = [*timed.forward], [*timed.backward]
    total = sum(forward) + sum(backward)
    return [work / total for work in forward], [work / total for work in backward]


def _units(profile: ModelProfile, timed: Compute | None, is_gathered: bool) -> Array:
    """Return forward share, backward share and parameters of each unit. Unless gathered, the model is one unit."""
    rows = list[list[float]]()
    layers = zip(profile.layers, *_shares(profile, timed), strict=True)
    for _, part in groupby(layers, key=lambda row: row[0].block):
        block = [*part]
        row = [
            sum(entry[1] for entry in block),
            sum(entry[2] for entry in block),
            sum(entry[0].parameters for entry in block),
        ]
        if rows and not row[2]:
            rows[-1] = [rows[-1][0] + row[0], rows[-1][1] + row[1], rows[-1][2]]
        else:
            rows.append(row)
    units = np.array(rows, dtype=float).T
    return units if is_gathered else units.sum(axis=1, keepdims=True)


def _buckets(profile: ModelProfile, timed: Compute | None, item: float, size_mb: float, is_overlapped: bool) -> Array:
    """Return each gradient bucket's share of the bytes, and the share of backward after which the bucket is full."""
    if not is_overlapped:
        return np.array([[1.0], [1.0]])
    size = round(size_mb * MIB)  # torch's first bucket is smaller only with the default size
    backward = None if timed is None else timed.backward
    buckets = fill_buckets(
        profile.gradients(int(item) or 4, backward), size, FIRST_BYTES if size == BUCKET_BYTES else size
    )
    sizes = np.array([bucket.nbytes for bucket in buckets], dtype=float)
    return np.array([sizes / sizes.sum(), [bucket.ready for bucket in buckets]])


def _stages(profile: ModelProfile, timed: Compute | None, count: float) -> Array:
    if not count:
        return np.zeros((len(STAGE), 1))
    of = dict[str, list[float]]()
    for layer, forward, backward in zip(profile.layers, *_shares(profile, timed), strict=True):
        shares = of.setdefault(layer.block, [0.0, 0.0])
        shares[0], shares[1] = shares[0] + forward, shares[1] + backward
    return np.array([
        [sum(of[block.name][0] for block in stage), sum(of[block.name][1] for block in stage),
         sum(block.parameters for block in stage), stage[-1].output_bytes / profile.item_bytes]
        for stage in cut_stages(profile, int(count))
    ]).T  # fmt: skip
