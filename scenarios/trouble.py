"""``[trouble]`` in a scenario file: what goes wrong in a prediction."""

from math import inf
from typing import Any

from pydantic import Field

from scenarios.section import Seconds, Section
from simcomm.jitter import Jitter
from simcomm.trouble import LinkTrouble, RankTrouble, Trouble

MOST_REPETITIONS = 100_000
Draws = 'for example "exponential" (or "uniform", "lognormal")'


class RankForm(Section):
    rank: int = Field(ge=0, description="a rank, for example 3")
    slowdown: float = Field(1.0, gt=0, allow_inf_nan=False)
    fails_at: Seconds | None = None


class LinkForm(Section):
    between: list[str] = Field(min_length=2, max_length=2, description='two nodes, for example ["h0", "s0"]')
    share: float = Field(ge=0, le=1, description="how much of its bandwidth is left, from 0 (down) to 1")
    at: Seconds = 0.0
    lasting: Seconds | None = None
    every: Seconds | None = None

    def trouble(self) -> LinkTrouble:
        a, b = self.between
        return LinkTrouble((a, b), self.share, self.at, _or_never(self.lasting), _or_never(self.every))


class MessageJitterForm(Section):
    distribution: str = Field(description=Draws)
    mean: Seconds
    deviation: Seconds = 0.0


class ComputeJitterForm(Section):
    distribution: str = Field(description=Draws)
    mean: float = Field(ge=0, allow_inf_nan=False, description="a share of the time it takes, for example 0.1")
    deviation: float = Field(0.0, ge=0, allow_inf_nan=False)


class TroubleForm(Section):
    seed: int = Field(0, ge=0, lt=2**63)
    repetitions: int = Field(100, ge=1, le=MOST_REPETITIONS)
    rank: list[RankForm] = Field([])
    link: list[LinkForm] = Field([])
    messages: MessageJitterForm | None = None
    compute: ComputeJitterForm | None = None

    def trouble(self) -> Trouble:
        """The same as the simulator takes it. Raises InputError."""
        return Trouble(
            tuple(RankTrouble(one.rank, one.slowdown, _or_never(one.fails_at)) for one in self.rank),
            tuple(
                LinkTrouble(
                    (one.between[0], one.between[1]), one.share, one.at, _or_never(one.lasting), _or_never(one.every)
                )
                for one in self.link
            ),
            _jitter(self.messages),
            _jitter(self.compute),
            self.seed,
            self.repetitions,
        )


def _or_never(seconds: float | None) -> float:
    return inf if seconds is None else seconds


def _jitter(form: Any) -> Jitter | None:
    return None if form is None else Jitter(form.distribution, form.mean, form.deviation)
