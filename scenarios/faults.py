"""``[faults]`` in a scenario file: what goes wrong in a prediction."""

from math import inf
from typing import Annotated, Self

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from collectives.errors import InputError
from collectives.quoting import quote, suggest
from collectives.units import format_time
from scenarios.fields import Seconds, Section
from simcomm.model.faults import Faults, LinkFault, RankFault
from simcomm.model.jitter import DISTRIBUTIONS, Jitter


def _known(distribution: str) -> str:
    if distribution not in DISTRIBUTIONS:
        raise InputError(f"unknown distribution {quote(distribution)}; {suggest(distribution, DISTRIBUTIONS)}")
    return distribution


Distribution = Annotated[
    str, AfterValidator(_known), Field(description='for example "exponential" (or "uniform", "lognormal")')
]


class RankSection(Section):
    """``[[faults.rank]]``: a rank that is slow, fails or both."""

    rank: int = Field(ge=0, description="a rank, for example 3")
    slowdown: float = Field(1.0, gt=0, allow_inf_nan=False)
    fails_at: Seconds | None = None

    @model_validator(mode="after")
    def _check_happens(self) -> Self:
        if self.fails_at is None and "slowdown" not in self.model_fields_set:
            raise InputError(f'rank {self.rank} has no fault; set slowdown = 2, fails_at = "5 ms" or both')
        return self

    def faults(self) -> RankFault:
        """Return the faults of this rank."""
        return RankFault(self.rank, self.slowdown, _or_never(self.fails_at))


class LinkSection(Section):
    """``[[faults.link]]``: a link that loses bandwidth, once or again and again."""

    between: list[str] = Field(min_length=2, max_length=2, description='two nodes, for example ["h0", "s0"]')
    share: float = Field(ge=0, le=1, description="how much of its bandwidth is left, from 0 (down) to 1")
    at: Seconds = 0.0
    lasting: Annotated[Seconds, Field(gt=0)] | None = None
    every: Seconds | None = None

    @field_validator("every")
    @classmethod
    def _check_every(cls, every: float | None, info: ValidationInfo) -> float | None:
        if every is None or "lasting" not in info.data:
            return every
        lasting = info.data["lasting"]
        if lasting is None:
            raise InputError(
                f'every = "{format_time(every)}" requires a shorter lasting, for example lasting = '
                f'"{format_time(every / 2)}"'
            )
        if every <= lasting:
            raise InputError(f"every ({format_time(every)}) must be longer than lasting ({format_time(lasting)})")
        return every

    def faults(self) -> LinkFault:
        """Return the faults of this link."""
        a, b = self.between
        return LinkFault((a, b), self.share, self.at, _or_never(self.lasting), _or_never(self.every))


class MessageJitterSection(Section):
    """``[faults.messages]``: random delays of messages, in seconds."""

    distribution: Distribution
    mean: Seconds
    deviation: Seconds | None = Field(None, validate_default=True)

    @field_validator("deviation")
    @classmethod
    def _check(cls, deviation: float | None, info: ValidationInfo) -> float | None:
        return _deviation(deviation, info, '"10 us"')


class ComputeJitterSection(Section):
    """``[faults.compute]``: random delays of computing, as shares of its time."""

    distribution: Distribution
    mean: float = Field(ge=0, allow_inf_nan=False, description="a share of the time it takes, for example 0.1")
    deviation: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(None, validate_default=True)

    @field_validator("deviation")
    @classmethod
    def _check(cls, deviation: float | None, info: ValidationInfo) -> float | None:
        return _deviation(deviation, info, "0.1")


def _deviation(deviation: float | None, info: ValidationInfo, example: str) -> float | None:
    distribution = info.data.get("distribution")
    if distribution == "lognormal" and not deviation:
        raise InputError(f"lognormal requires a positive deviation, for example deviation = {example}")
    if distribution in DISTRIBUTIONS and distribution != "lognormal" and deviation is not None:
        raise InputError(f"{distribution} does not have a deviation; remove the key, or use lognormal")
    return deviation


class FaultsSection(Section):
    """``[faults]``: what goes wrong, and how often it is simulated."""

    seed: int = Field(0, ge=0, lt=2**63)
    repetitions: int = Field(100, ge=1, le=100_000)
    rank: list[RankSection] = Field([])
    link: list[LinkSection] = Field([])
    messages: MessageJitterSection | None = None
    compute: ComputeJitterSection | None = None

    def faults(self) -> Faults:
        """Return the faults as the simulator takes it."""
        return Faults(
            tuple(one.faults() for one in self.rank),
            tuple(one.faults() for one in self.link),
            _jitter(self.messages),
            _jitter(self.compute),
            self.seed,
            self.repetitions,
        )


def _or_never(seconds: float | None) -> float:
    return inf if seconds is None else seconds


def _jitter(section: MessageJitterSection | ComputeJitterSection | None) -> Jitter | None:
    return None if section is None else Jitter(section.distribution, section.mean, section.deviation or 0.0)
