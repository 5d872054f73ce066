"""A cause: what explains that something is slow or stands still, the line that shows it, and what it would gain."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import log

from simcomm.diagnosis.evidence.facts import FilePlace

SLOW = 1.15  # times what was to be expected; below this nothing is to be explained


@dataclass(frozen=True)
class Cause:
    """What explains it: ``strength`` is how surely the line shows it, 0 to 1.

    ``gain`` is how many times faster it should be without the cause, by prediction; None where nothing predicts it.
    """

    name: str
    text: str
    place: FilePlace
    remedy: str
    strength: float
    gain: float | None = None
    is_hang: bool = False

    @property
    def evidence(self) -> str:
        """The line that shows it, or the file where all of it does."""
        return self.place.text or self.place.file

    def weight(self, factor: float | None) -> float:
        """Return how well it explains a measured factor: its strength, less where it would explain another one."""
        if factor is None or self.gain is None or factor <= SLOW:
            return self.strength
        apart = abs(log(max(self.gain, 1.0)) - log(factor)) / max(log(factor), log(2.0))
        return self.strength * (1 - 0.5 * min(1.0, apart))


def rank_causes(causes: Iterable[Cause], factor: float | None) -> tuple[Cause, ...]:
    """Return causes, the likeliest first; of one name only the likeliest."""
    best: dict[str, Cause] = {}
    for one in causes:
        if one.name not in best or one.weight(factor) > best[one.name].weight(factor):
            best[one.name] = one
    return tuple(sorted(best.values(), key=lambda one: -one.weight(factor)))


def stands_still(name: str, text: str, place: FilePlace, remedy: str, strength: float) -> Cause:
    """Return a cause of a run that stands still or does not start."""
    return Cause(name, text, place, remedy, strength, None, is_hang=True)
