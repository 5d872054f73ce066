"""What a training step on a mesh is predicted to be: its seconds by parts, its rate, and how sure these are."""

from dataclasses import dataclass, fields
from math import exp, sqrt
from statistics import NormalDist

from collectives.training.parallelism import Parallelism
from planner.mesh.calls import Call
from planner.mesh.intervals import Shares, log_halfwidth
from planner.mesh.job import TrainingJob
from planner.mesh.language import RateDeviations
from planner.mesh.memory import DeviceMemory
from planner.mesh.terms import loading_felt, read_parameters

Spans = tuple[tuple[str, str, float, float], ...]  # name, stream, begin, end
NOT_A_BOTTLENECK = ("compute", "optimizer")
EXCHANGED = ("tensor", "expert", "pipeline", "sync", "overlap_slowdown", "copies")


@dataclass(frozen=True)
class StepParts:
    """Seconds of a step by what they go to; they add up to the step.

    ``compute`` is of the device with most to do, with what is computed again; ``tensor`` and ``expert`` are collectives
    within layers; ``pipeline`` is waiting for other stages; ``sync`` what the data axis adds that nothing hides, and
    ``overlap_slowdown`` what it takes from computing beside it; ``copies`` are passes over gradients that several
    devices need, and ``processes`` is waiting for the other GPUs' processes, which share a host's cores. ``input`` is
    what loaders that are too slow add.
    """

    compute: float
    optimizer: float
    tensor: float = 0.0
    expert: float = 0.0
    pipeline: float = 0.0
    sync: float = 0.0
    overlap_slowdown: float = 0.0
    copies: float = 0.0
    stragglers: float = 0.0
    input: float = 0.0
    processes: float = 0.0

    @property
    def total(self) -> float:
        """Seconds of a step."""
        return sum(self.as_dict().values())

    @property
    def bottleneck(self) -> tuple[str, float]:
        """The largest part besides compute, and its share of the step; "compute" if that share is below 2 %.

        >>> StepParts(compute=0.5, optimizer=0.0, sync=0.25, overlap_slowdown=0.25).bottleneck
        ('sync', 0.5)
        """
        found = {name: value for name, value in self.as_dict().items() if name not in NOT_A_BOTTLENECK}
        found["sync"] += found.pop("overlap_slowdown")
        name = max(found, key=lambda each: found[each])
        share = found[name] / self.total
        return (name, share) if share >= 0.02 else ("compute", self.compute / self.total)

    def as_dict(self) -> dict[str, float]:
        """Return the seconds by name."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


@dataclass(frozen=True, kw_only=True)
class StepPrediction:
    """A step on so many devices. ``rate`` are samples a second of all of them."""

    job: TrainingJob
    devices: int
    parts: StepParts
    memory: tuple[DeviceMemory, ...]  # of a device of each stage
    calls: tuple[tuple[Call, ...], ...]  # in a step, of a device of each stage
    alone: float  # samples a second of one device that has no others
    spread: float  # of the log of the rate of one device
    spans: Spans = ()
    network: bool = False  # whether several hosts exchange
    chance_to_run: float | None = None  # of a language model, by the share of memory that it fills
    deviations: RateDeviations | None = None  # where the rate is not that of the timeline

    @property
    def parallelism(self) -> Parallelism:
        """The strategy, and the mesh of these devices."""
        return self.job.parallelism

    @property
    def rate(self) -> float:
        """Samples a second of all devices."""
        return self.job.batch * self.parallelism.data / self.parts.total

    @property
    def sent_bytes(self) -> float:
        """Bytes that the device sends that sends most."""
        return max(sum(call.sent for call in calls) for calls in self.calls)

    @property
    def efficiency(self) -> float:
        """The rate, as a share of what as many devices would reach that had nothing to exchange."""
        return self.rate / (self.devices * self.alone)

    @property
    def bottleneck(self) -> tuple[str, float]:
        """The largest part besides compute, and its share of the step; "compute" if that share is below 2 %."""
        return self.parts.bottleneck

    def interval(self, coverage: float = 0.8) -> tuple[float, float]:
        """Return bounds of the rate: of one device's, and of what scaling loses, taken as independent."""
        scaling, alone = self._widths(coverage)
        width = exp(sqrt(scaling**2 + alone**2))
        if self.deviations is not None:  # the two are not independent there
            width = exp(NormalDist().inv_cdf((1 + coverage) / 2) * self.deviations.rate)
        return self.rate / width, self.rate * width

    def efficiency_interval(self, coverage: float = 0.8) -> tuple[float, float]:
        """Return bounds of the efficiency, which does not depend on the rate of one device; 1 is the most."""
        width = exp(self._widths(coverage)[0])
        return self.efficiency / width, max(self.efficiency, min(1.0, self.efficiency * width))

    def parts_intervals(self, coverage: float = 0.8) -> dict[str, tuple[float, float]]:
        """Return bounds of the seconds of each part: of what a device computes alone, and of all that several add.

        Of what several add only the sum is known to be so far off, so all of it moves together.
        """
        scaling, alone = map(exp, self._widths(coverage))
        own = self.parts.compute + self.parts.optimizer
        added = self.parts.total - own
        least, most = max(0.0, self.parts.total / scaling - own), self.parts.total * scaling - own
        few, many = (least / added, most / added) if added > 0 else (0.0, 0.0)
        return {
            name: (value / alone, value * alone) if name in NOT_A_BOTTLENECK else (value * few, value * many)
            for name, value in self.parts.as_dict().items()
        }

    @property
    def rests_on(self) -> Shares:
        """What the step rests on, by which its interval is wider."""
        parts, total = self.parts, self.parts.total
        waiting = parts.stragglers / total
        exchanged = sum(getattr(parts, name) for name in EXCHANGED) / total
        felt = loading_felt(read_parameters(), parts.input / total)
        unequal = waiting if self.job.variable_batches else 0.0
        return Shares(exchanged, waiting - unequal, felt, unequal, float(self.network))

    def _widths(self, coverage: float) -> tuple[float, float]:
        """Return half the intervals of the logarithms of what scaling loses and of the rate of one device."""
        if self.deviations is not None:
            quantile = NormalDist().inv_cdf((1 + coverage) / 2)
            return quantile * self.deviations.scaling, quantile * self.deviations.alone
        scaling = float(log_halfwidth(self.rests_on, coverage)) if self.devices > 1 else 0.0
        return scaling, self.spread * NormalDist().inv_cdf((1 + coverage) / 2)
