"""Who hears of what ranks do, to find mistakes that stop nothing."""

from collections.abc import Callable
from typing import Any

from virtual.ranks.finding import FindingPlace, ProgramFinding
from virtual.ranks.rank import Rank, RankJob
from virtual.ranks.sites import CallSite

Key = tuple[int, str, str, str, CallSite | None]


class Watcher:
    """Hears of what ranks do. Each kind of mistake has one that knows it, and overrides what it must hear.

    What it finds is kept by kind, title and line, so that it is told once, with all ranks that it is true of.
    """

    def __init__(self) -> None:
        self._found: dict[Key, set[int]] = {}
        self._told: list[tuple[int, ProgramFinding]] = []

    # -- what matching says

    def posted(self, posted: Any) -> None:
        """Hear of a ``Posted`` before it is matched."""

    def complete(self, collective: Any) -> None:
        """Hear of a ``Collective`` to which all ranks have come, before its data moves."""

    def moved(self, collective: Any) -> None:
        """Hear that the data of a complete collective has moved."""

    def met(self, sender: Any, receiver: Any) -> None:
        """Hear of a message's two halves, before its data moves."""

    def arrived(self, sender: Any, receiver: Any) -> None:
        """Hear that the data of a message has moved."""

    def waited(self, posted: Any) -> None:
        """Hear that a rank has waited for what it has posted."""

    def key_set(self, rank: Rank, key: str) -> None:
        """Hear that a rank sets a key of the store."""

    def key_seen(self, rank: Rank, key: str) -> None:
        """Hear that a rank has read or awaited a key of the store."""

    # -- what the program does with torch

    def backward_begins(self, rank: Rank, roots: tuple[Any, ...]) -> None:
        """Hear of the tensors that backward begins with."""

    def backward_ended(self, rank: Rank) -> None:
        """Hear that backward has ended."""

    def gradient_ready(self, rank: Rank, parameter: Any, gradient: Any) -> None:
        """Hear that a hook of the program on a parameter is given its gradient."""

    def gradient_handled(self, rank: Rank, parameter: Any) -> None:
        """Hear that the hook has returned."""

    def clipping(self, rank: Rank) -> None:
        """Hear that gradients are about to be clipped by their norm."""

    def scaler_steps(self, rank: Rank, scaler: Any) -> None:
        """Hear that a gradient scaler is about to let an optimizer step, or not."""

    def made_optimizer(self, rank: Rank, optimizer: Any) -> None:
        """Hear of a new optimizer."""

    def stepping(self, rank: Rank, optimizer: Any) -> None:
        """Hear that an optimizer that no other calls is about to step."""

    def stepped(self, rank: Rank, optimizer: Any) -> None:
        """Hear that it has stepped."""

    def wrapped(self, rank: Rank, ddp: Any) -> None:
        """Hear that a module has become DistributedDataParallel."""

    def hooked(self, rank: Rank, bucket: Any, site: CallSite) -> None:
        """Hear that a hook of DDP, registered at a line, is given a bucket of gradients."""

    def forward_begins(self, rank: Rank, ddp: Any) -> None:
        """Hear that a DistributedDataParallel is called."""

    def dropping(self, rank: Rank) -> None:
        """Hear that dropout is about to draw random numbers."""

    def evaluating(self, rank: Rank, module: Any) -> None:
        """Hear that a module is set to be evaluated."""

    def replicated(self, rank: Rank, tensor: Any, mesh: Any, placements: Any) -> None:
        """Hear of a tensor that is to be a DTensor with these placements, some of which are replicas."""

    def joined(self, rank: Rank, parts: Any, whole: Any) -> None:
        """Hear of a tensor that is made of others, one after the other, or row by row of one."""

    def adding(self, rank: Rank, tensors: Any) -> None:
        """Hear that a tensor is about to be added to another in place, the first."""

    def added(self, rank: Rank, total: Any) -> None:
        """Hear of the sum that has been made in place."""

    def summed(self, rank: Rank, tensors: Any, total: Any) -> None:
        """Hear of two tensors and their sum, a new tensor."""

    def put_together(self, rank: Rank, tensors: Any) -> None:
        """Hear that tensors are about to be concatenated or stacked."""

    def used(self, rank: Rank, tensor: Any) -> None:
        """Hear that a tensor is about to be divided or summed up."""

    def compared(self, rank: Rank, one: Any, other: Any) -> None:
        """Hear that two tensors are compared element by element."""

    def sampling(self, rank: Rank, sampler: Any) -> None:
        """Hear that a DistributedSampler is gone through."""

    def setting_epoch(self, rank: Rank, sampler: Any) -> None:
        """Hear that the program gives a DistributedSampler an epoch."""

    def made_sampler(self, rank: Rank, sampler: Any) -> None:
        """Hear of a new DistributedSampler."""

    def batch_drawn(self, rank: Rank) -> None:
        """Hear that a rank takes a batch of a DataLoader."""

    def opened(self, rank: Rank, path: str, writes: bool) -> None:
        """Hear that a rank reads or writes a file."""

    def made_group(self, rank: Rank, ranks: tuple[int, ...], is_local: bool) -> None:
        """Hear of ``new_group`` with its ranks as given; ``is_local``: only members need to call it."""

    def looked_up_place(self, rank: Rank, group: Any) -> None:
        """Hear that the program asks for a rank's place in a group."""

    def outside(self, rank: Rank, verb: str) -> None:
        """Hear that a rank calls a collective of a group that it is not in."""

    def ended(self, job: RankJob) -> None:
        """Hear that a job has ended well, to look at what is left."""

    def failed(self, job: RankJob) -> None:
        """Hear that an exception of the program has stopped a job."""

    def mode(self, rank: Rank) -> Any:
        """Return the mode in which a rank's operators are looked at, or None."""
        return None

    # -- what it tells

    def find(self, kind: str, title: str, rank: Rank, site: CallSite | None, advice: str) -> None:
        """Note a mistake of a rank at a line; ``{ranks}`` in the title is where all ranks stand that it is true of."""
        self._found.setdefault((rank.job.number, kind, title, advice, site), set()).add(rank.number)

    def tell(self, job: RankJob, finding: ProgramFinding) -> None:
        """Note a mistake that is complete."""
        self._told.append((job.number, finding))

    def findings(self, job: RankJob, naming: Callable[[set[int]], str]) -> list[ProgramFinding]:
        """Return what was noted of a job, as findings."""
        found = [finding for number, finding in self._told if number == job.number]
        for (number, kind, title, advice, site), ranks in self._found.items():
            if number == job.number:
                place = FindingPlace(tuple(sorted(ranks)), "", site)
                found.append(ProgramFinding(kind, title.replace("{ranks}", naming(ranks)), (place,), advice))
        return found


EVENTS = tuple(
    name
    for name, value in vars(Watcher).items()
    if callable(value) and not name.startswith("_") and name not in ("find", "tell", "findings", "mode")
)


def nobody(*said: Any) -> None:
    """Pass an event on to nobody."""


class Watchers:
    """Passes each event on to those who want to hear of it; without watchers to nobody."""

    posted: Callable[..., None]
    complete: Callable[..., None]
    moved: Callable[..., None]
    met: Callable[..., None]
    arrived: Callable[..., None]
    waited: Callable[..., None]
    key_set: Callable[..., None]
    key_seen: Callable[..., None]
    stepping: Callable[..., None]
    adding: Callable[..., None]
    dropping: Callable[..., None]
    ended: Callable[..., None]
    failed: Callable[..., None]

    def __init__(self, watchers: tuple[Watcher, ...] = ()) -> None:
        self.broken: dict[str, BaseException] = {}  # what went wrong in watchers, by their names
        self.put(watchers)

    def put(self, watchers: tuple[Watcher, ...]) -> None:
        """Pass events on to these from now on."""
        self.watchers = watchers
        for name in EVENTS:
            mine = [one for one in watchers if getattr(type(one), name) is not getattr(Watcher, name)]
            setattr(self, name, self._passing_on([(type(one).__name__, getattr(one, name)) for one in mine]))

    def _passing_on(self, hearers: list[tuple[str, Callable[..., None]]]) -> Callable[..., None]:
        """Return a function that calls all. An error of theirs is none of the program's: it is kept, to be told."""

        if not hearers:
            return nobody

        def pass_on(*said: Any) -> None:
            for name, hearer in hearers:
                try:
                    hearer(*said)
                except Exception as error:
                    self.broken.setdefault(name, error)

        return pass_on
