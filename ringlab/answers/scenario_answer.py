"""What the answers about a scenario share: ``Prediction``, ``RunAnswer`` and ``Comparison``."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic

from collectives.records.environment import describe_environment
from ringlab.answers.figures import ClusterFigures, CollectiveFigures, N, Number, TrainingFigures
from ringlab.shared.answer import SCHEMA_VERSION, Record, to_plain


@dataclass(frozen=True, kw_only=True, repr=False)
class ScenarioAnswer(Record, Generic[N]):
    """What a command found about a scenario."""

    kind: ClassVar[str]

    title: str  # of the scenario
    file: str
    cluster: str
    collectives: tuple[CollectiveFigures[N], ...]
    training: tuple[TrainingFigures[N], ...]
    what_ifs: tuple[ClusterFigures[Number], ...] = ()
    environment: dict[str, str | int] = field(default_factory=describe_environment)
    conclusions: tuple[str, ...] = ()  # a few sentences
    explanations: tuple[str, ...] = ()  # further ones
    interrupted: bool = False  # rows are missing then

    def __repr__(self) -> str:
        counted = ((self.collectives, "collective"), (self.training, "training"), (self.what_ifs, "what-if"))
        parts = [f"{len(found)} {noun}{'s' * (len(found) != 1)}" for found, noun in counted if found]
        return f"<{type(self).__name__} of {self.title!r}: {', '.join(parts)}{', interrupted' * self.interrupted}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: conclusions and tables."""
        from viz.report import render_tables  # who asks no notebook does without it

        return render_tables(self.to_dict())

    @property
    def place(self) -> str:
        """Where the scenario's own figures are from."""
        return self.cluster

    @property
    def own(self) -> ClusterFigures[N]:
        """The figures of the scenario's own cluster, under the cluster's title."""
        return ClusterFigures(
            title=self.cluster, cluster=self.cluster, collectives=self.collectives, training=self.training
        )

    def to_dict(self) -> dict[str, Any]:
        """Return what the command writes as JSON."""
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": self.kind,
            "scenario": {"title": self.title, "file": self.file, "cluster": self.cluster},
            "environment": self.environment,
            "collectives": to_plain(self.collectives),
            "training": to_plain(self.training),
            "what_if": to_plain(self.what_ifs),
            "conclusions": list(self.conclusions),
            "explanations": list(self.explanations),
        } | ({"interrupted": True} if self.interrupted else {})
