"""What a rank tells of a training that is over."""

from dataclasses import dataclass

from collectives.records.spans import Span


@dataclass(frozen=True)
class RankResult:
    """The result of a training on one rank."""

    spans: list[Span]
    facts: dict[str, float]  # the same on all ranks, but for single_rank_step_s, which rank 0 measures
    digest: str  # SHA-256 of its final weights
