"""Define ``[faults]`` in a scenario file: stragglers, failures, degraded links and jitter."""

from math import inf
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from collectives.checks import check_known
from collectives.errors import InputError
from collectives.units import format_time
from scenarios.fields import Seconds, Section
from simcomm.model.faults import Faults, LinkFault, RankFault
from simcomm.model.jitter import DISTRIBUTIONS, Jitter

Distribution = Annotated[
    str,
    AfterValidator(lambda name: check_known("distribution", name, DISTRIBUTIONS)),
    Field(description='for example "exponential" (or "uniform", "lognormal")'),
]


class RankSection(Section):
    """``[[faults.rank]]``: a straggler, a failing rank, or both."""

    rank: int = Field(ge=0, description="a rank, for example 3")
    slowdown: float = Field(1.0, gt=0, allow_inf_nan=False)
    fails_at: Seconds = inf

    @model_validator(mode="after")
    def _check_happens(self) -> Self:
        if not {"fails_at", "slowdown"} & self.model_fields_set:
            raise InputError(f'rank {self.rank} has no fault; set slowdown = 2, fails_at = "5 ms" or both')
        return self

    def faults(self) -> RankFault:
        """Return the RankFault that this table describes."""
        return RankFault(self.rank, self.slowdown, self.fails_at)


class LinkSection(Section):
    """``[[faults.link]]``: a link that loses bandwidth, once or periodically."""

    between: list[str] = Field(min_length=2, max_length=2, description='two nodes, for example ["h0", "s0"]')
    share: float = Field(ge=0, le=1, description="the remaining share of its bandwidth, from 0 (down) to 1")
    at: Seconds = 0.0
    lasting: Annotated[Seconds, Field(gt=0)] = inf
    every: Seconds = inf

    @field_validator("every")
    @classmethod
    def _check_every(cls, every: float, info: ValidationInfo) -> float:
        lasting = info.data.get("lasting", 0.0)  # missing if it is invalid
        if lasting == inf:
            raise InputError(
                f'every = "{format_time(every)}" requires a shorter time in lasting, for example lasting '
                f'= "{format_time(every / 2)}"'
            )
        if every <= lasting:
            raise InputError(f"every ({format_time(every)}) must be longer than lasting ({format_time(lasting)})")
        return every

    def faults(self) -> LinkFault:
        """Return the LinkFault that this table describes."""
        a, b = self.between
        return LinkFault((a, b), self.share, self.at, self.lasting, self.every)


class JitterSection(Section):
    """Random delays of messages or of computing."""

    example: ClassVar[str]  # example of a deviation

    @field_validator("deviation", check_fields=False)
    @classmethod
    def _check_deviation(cls, deviation: float | None, info: ValidationInfo) -> float | None:
        distribution = info.data.get("distribution")
        if distribution == "lognormal" and not deviation:
            raise InputError(f"lognormal requires a positive deviation, for example deviation = {cls.example}")
        if distribution in DISTRIBUTIONS and distribution != "lognormal" and deviation is not None:
            raise InputError(f"{distribution} does not have a deviation; remove the key, or use lognormal")
        return deviation


class MessageJitterSection(JitterSection):
    """``[faults.messages]``: random delays of messages, in seconds."""

    example: ClassVar[str] = '"10 us"'
    distribution: Distribution
    mean: Seconds
    deviation: Seconds | None = Field(None, validate_default=True)


class ComputeJitterSection(JitterSection):
    """``[faults.compute]``: random delays of computing, as fractions of the compute time."""

    example: ClassVar[str] = "0.1"
    distribution: Distribution
    mean: float = Field(ge=0, allow_inf_nan=False, description="a fraction of the compute time, for example 0.1")
    deviation: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(None, validate_default=True)


class FaultsSection(Section):
    """``[faults]``: all faults, and the number of simulated repetitions."""

    seed: int = Field(0, ge=0, lt=2**63)
    repetitions: int = Field(100, ge=1, le=100_000)
    rank: list[RankSection] = Field([])
    link: list[LinkSection] = Field([])
    messages: MessageJitterSection | None = None
    compute: ComputeJitterSection | None = None

    def faults(self) -> Faults:
        """Return the Faults for the simulator."""
        return Faults(
            tuple(rank.faults() for rank in self.rank),
            tuple(link.faults() for link in self.link),
            _jitter(self.messages),
            _jitter(self.compute),
            self.seed,
            self.repetitions,
        )


def _jitter(section: MessageJitterSection | ComputeJitterSection | None) -> Jitter | None:
    return None if section is None else Jitter(section.distribution, section.mean, section.deviation or 0.0)
