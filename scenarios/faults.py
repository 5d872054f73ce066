"""Define ``[faults]`` in a scenario file: stragglers, failures, degraded links and jitter."""

from math import inf
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from collectives.checks import check_known
from collectives.errors import InputError
from scenarios.fields import Seconds, Section
from simcomm.model.faults import DISTRIBUTIONS, Faults, Jitter, LinkFault, RankFault

Distribution = Annotated[
    str,
    AfterValidator(lambda name: check_known("distribution", name, DISTRIBUTIONS)),
    Field(description='for example "exponential" (or "uniform")'),
]


class RankSection(Section):
    """``[[faults.rank]]``: a rank that computes slowly, fails at some time, or both."""

    rank: int = Field(ge=0, description="a rank, for example 3")
    slowdown: float = Field(1.0, gt=0, allow_inf_nan=False)
    fails_at: Seconds = inf

    @model_validator(mode="after")
    def _check_happens(self) -> Self:
        if not {"fails_at", "slowdown"} & self.model_fields_set:
            raise InputError(f'rank {self.rank} has no fault; set slowdown = 2, fails_at = "5 ms" or both')
        return self


class LinkSection(Section):
    """``[[faults.link]]``: a link that loses part of its bandwidth, or all of it."""

    between: list[str] = Field(min_length=2, max_length=2, description='two nodes, for example ["h0", "s0"]')
    share: float = Field(ge=0, le=1, description="the remaining share of its bandwidth, from 0 (down) to 1")
    at: Seconds = 0.0
    lasting: Annotated[Seconds, Field(gt=0)] = inf


class MessageJitterSection(Section):
    """``[faults.messages]``: a random delay of each message, in seconds."""

    distribution: Distribution
    mean: Seconds


class ComputeJitterSection(Section):
    """``[faults.compute]``: a random delay of each computation, as a fraction of its time."""

    distribution: Distribution
    mean: float = Field(ge=0, allow_inf_nan=False, description="a fraction of the compute time, for example 0.1")


class FaultsSection(Section):
    """``[faults]``: all faults of a scenario, and the number of simulated repetitions."""

    seed: int = Field(0, ge=0, lt=2**63)
    repetitions: int = Field(100, ge=1, le=100_000)
    rank: list[RankSection] = Field([])
    link: list[LinkSection] = Field([])
    messages: MessageJitterSection | None = None
    compute: ComputeJitterSection | None = None

    def faults(self) -> Faults:
        return Faults(
            tuple(RankFault(**rank.model_dump()) for rank in self.rank),
            tuple(LinkFault(**link.model_dump() | {"between": (*link.between,)}) for link in self.link),
            Jitter(**self.messages.model_dump()) if self.messages else None,
            Jitter(**self.compute.model_dump()) if self.compute else None,
            self.seed,
            self.repetitions,
        )
