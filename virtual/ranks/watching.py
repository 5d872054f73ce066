"""Watchers receive the events of all ranks and find errors that do not stop the program."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from virtual.ranks.finding import FindingPlace, ProgramFinding, format_ranks, group_places
from virtual.ranks.rank import Rank, RankJob
from virtual.ranks.sites import CallSite

EVENTS = (
    # operations: a ``Posted``, a complete ``Collective``, or a send and its receive
    "posted",  # an operation, before it is matched
    "complete",  # a collective that all ranks have reached, before its data moves
    "moved",  # a collective whose data has moved
    "met",  # sender and receiver, before the data moves
    "arrived",  # sender and receiver, after the data has moved
    "waited",  # an operation that its rank has waited for
    "key_set",  # rank, key of the store
    "key_seen",  # rank, key of the store that it has read or awaited
    # training; the first argument is the rank
    "backward_begins",  # tensors that backward starts from
    "backward_ended",
    "gradient_ready",  # parameter and gradient that a hook of the program receives
    "gradient_handled",  # parameter whose hook has returned
    "scaler_steps",  # gradient scaler that is about to step an optimizer, or to skip the step
    "made_optimizer",  # optimizer
    "stepping",  # outermost optimizer that is about to step
    "stepped",  # outermost optimizer that has stepped
    "wrapped",  # new DistributedDataParallel
    "hooked",  # bucket of gradients that a DDP communication hook receives; line that registered the hook
    "forward_begins",  # DistributedDataParallel
    "replicated",  # tensor that becomes a DTensor with replicated placements; mesh, placements
    "adding",  # two tensors, before their addition
    "added",  # their sum
    "put_together",  # tensors that are about to be concatenated or stacked
    "used",  # tensor that is about to be divided or summed up
    "sampling",  # DistributedSampler whose iteration starts
    "setting_epoch",  # DistributedSampler
    "made_sampler",  # DistributedSampler
    "batch_drawn",  # iterator of a DataLoader that returns a batch
    # files and groups; the first argument is the rank
    "opened",  # path of a file; whether it is written
    "made_group",  # ranks as passed to ``new_group``; whether only members need to call it
    "outside",  # name of a collective that a non-member calls
    # the end of a job
    "ended",  # job that ran to its end
    "failed",  # job that an exception of the program stopped
)


class Watcher:
    """Finds one kind of error. A subclass has a method for each event in ``EVENTS`` that it needs.

    In the title of a finding, ``{ranks}`` stands for the ranks that have the error.
    """

    def __init__(self) -> None:
        self._ranks: dict[tuple[int, str, str, str, CallSite | None], set[int]] = {}
        self._complete: list[tuple[int, ProgramFinding]] = []
        self._gathered: dict[Any, dict[Any, Any]] = {}
        self._times = Counter[Any]()

    def gather(self, key: Any, member: Any, value: Any, size: int) -> dict[Any, Any] | None:
        """Store a member's value under ``key``. Return all values once ``size`` members have stored one, else None."""
        values = self._gathered.setdefault(key, {})
        values[member] = value
        return self._gathered.pop(key) if len(values) == size else None

    def count(self, *key: Any) -> int:
        """Return how often this method was called with the same key, including this call."""
        self._times[key] += 1
        return self._times[key]

    def find(self, kind: str, title: str, rank: Rank, site: CallSite | None, advice: str) -> None:
        """Report an error of one rank. Equal errors of several ranks become one finding."""
        self._ranks.setdefault((rank.job.number, kind, title, advice, site), set()).add(rank.number)

    def compare(self, kind: str, title: str, places: Iterable[tuple[Rank, str, CallSite | None]], advice: str) -> None:
        """Report an error of several ranks as one finding. ``places`` has a text and a line for each rank."""
        entries = [*places]
        title = title.replace("{ranks}", format_ranks(rank.number for rank, *_ in entries))
        grouped = group_places((rank.number, text, site) for rank, text, site in entries)
        self.tell(entries[0][0].job, ProgramFinding(kind, title, grouped, advice))

    def tell(self, job: RankJob, finding: ProgramFinding) -> None:
        self._complete.append((job.number, finding))

    def findings(self, job: RankJob) -> list[ProgramFinding]:
        findings = [finding for number, finding in self._complete if number == job.number]
        for (number, kind, title, advice, site), ranks in self._ranks.items():
            if number == job.number:
                place = FindingPlace(tuple(sorted(ranks)), "", site)
                findings.append(ProgramFinding(kind, title.replace("{ranks}", format_ranks(ranks)), (place,), advice))
        return findings


def nobody(*arguments: Any) -> None:
    """Do nothing. This function receives the events for which there is no watcher."""


class Watchers:
    """Passes each event in ``EVENTS`` to all watchers that have a method for it."""

    if TYPE_CHECKING:

        def __getattr__(self, event: str) -> Callable[..., None]: ...

    def __init__(self, watchers: tuple[Watcher, ...] = ()) -> None:
        self.broken: dict[str, BaseException] = {}  # exceptions of watchers, by class name
        self.put(watchers)

    def put(self, watchers: tuple[Watcher, ...]) -> None:
        self.watchers = watchers
        for event in EVENTS:
            receivers = [
                (type(watcher).__name__, getattr(watcher, event)) for watcher in watchers if hasattr(watcher, event)
            ]
            setattr(self, event, self._passing_on(receivers) if receivers else nobody)

    def _passing_on(self, receivers: list[tuple[str, Callable[..., None]]]) -> Callable[..., None]:
        def pass_on(*arguments: Any) -> None:
            for name, receive in receivers:
                try:
                    receive(*arguments)
                except Exception as error:  # not the program's error
                    self.broken.setdefault(name, error)

        return pass_on
