"""Rows of a training on 1 to N devices, by values of what a what-if varies."""

from typing import NamedTuple


class DevicesRow(NamedTuple):
    """The training on so many devices; rates are samples a second of all of them. Intervals hold 80 %.

    ``interval`` is that of the rate; that of the efficiency does not depend on the rate of one device.
    """

    devices: int
    parallelism: str
    samples_per_s: float
    interval: tuple[float, float]
    efficiency: float
    efficiency_interval: tuple[float, float]
    step_s: float
    step_interval: tuple[float, float]
    parts: dict[str, float]
    parts_intervals: dict[str, tuple[float, float]]
    memory: dict[str, float]  # bytes of the device that keeps most
    bottleneck: str
    bottleneck_share: float
    links_shared_between: tuple[str, ...]  # on which traffic of a step holds other traffic back
    links_shared_within: dict[str, str]  # by part of the step: on which messages of one collective do
    sent_bytes: float  # in a step, by the device that sends most
    calls: tuple[dict[str, str | float], ...]  # what this device takes part in, and how often
    epoch_s: float | None
    epoch_interval: tuple[float, float] | None
    epoch_cost: float | None
    epoch_cost_interval: tuple[float, float] | None


class Refused(NamedTuple):
    """A number of devices that the training cannot have, and why."""

    devices: int
    reason: str


class Case(NamedTuple):
    """The scenario with one value of the key that a what-if varies; "" where nothing varies."""

    value: str
    rows: tuple[DevicesRow, ...]
    refused: tuple[Refused, ...]
