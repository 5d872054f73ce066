"""Find tensors that are written or read while an operation on them is pending, and missing waits."""

from collections import Counter
from typing import Any, NamedTuple
from weakref import WeakValueDictionary
from zlib import crc32

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from virtual.matching.samples import is_plain
from virtual.ranks.neutral import Neutral
from virtual.ranks.rank import Rank, RankJob
from virtual.ranks.sites import find_site
from virtual.ranks.watching import Watcher

WAIT_FIRST = "call wait() on the handle before writing to the tensor, or pass a copy (clone)"
OWN_BUFFERS = "use a separate tensor for each irecv, or call wait() before the next one"
OWN_TENSORS = "create one tensor per rank: [torch.empty_like(t) for _ in range(world_size)], not [t] * world_size"
NEVER = "keep the handle and call wait() before using the tensor"


class Content(NamedTuple):
    """A tensor, its version counter, and a checksum of its bytes if it is only a part of its storage."""

    tensor: torch.Tensor
    version: int
    checksum: int | None

    @classmethod
    def of(cls, tensor: torch.Tensor) -> "Content":
        """Return a tensor's current content."""
        if tensor.nbytes >= tensor.untyped_storage().nbytes():
            return cls(tensor, tensor._version, None)
        with Neutral():
            octets = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
            return cls(tensor, tensor._version, crc32(octets.numpy().data))

    def renewed(self) -> "Content":
        """Return the current content of the same tensor."""
        return self if self.checksum is None and self.is_unchanged else Content.of(self.tensor)

    @property
    def is_unchanged(self) -> bool:
        """Whether the tensor has not been written since it was recorded. Writes elsewhere in its storage are fine."""
        if self.version == self.tensor._version:
            return True
        return self.checksum is not None and self.checksum == Content.of(self.tensor).checksum


class InFlight(Watcher):
    """Finds tensors that are written before an operation on them is done, and handles that are never waited for."""

    def __init__(self) -> None:
        super().__init__()
        self._receives = WeakValueDictionary[tuple[Rank, int], Any]()  # the last receive into an address of a rank

    def posted(self, posted: Any) -> None:
        if not posted.is_programs:
            return
        if posted.way == "receives":
            self._compare_receives(posted)
        elif posted.way == "calls" and posted.exchange.collective == "all_gather":
            self._look_for_doubles(posted)
        if is_watched(posted):
            posted.contents = [
                Content.of(tensor) for tensor in posted.tensors if is_plain(tensor) and not tensor.is_inference()
            ]

    def _compare_receives(self, posted: Any) -> None:
        tensor = posted.tensors[0]
        if not is_plain(tensor) or not tensor.data_ptr():
            return
        place = posted.rank, tensor.data_ptr()
        other = self._receives.get(place)
        self._receives[place] = posted
        if other is not None and any(work.posted is other for work in posted.rank.unwaited.values()):
            title = f"{{ranks}} received two messages into one tensor: the receive at {other.site} is still pending"
            self.find("buffer in use", title, posted.rank, posted.site, OWN_BUFFERS)

    def _look_for_doubles(self, posted: Any) -> None:
        """Report an all_gather whose outputs are all the same tensor. A list with only some repeats may be intended."""
        outputs = [tensors[0] for tensors in posted.exchange.outputs]
        if not outputs or not is_plain(outputs[0]) or not outputs[0].numel():
            return
        if len({tensor.data_ptr() for tensor in outputs}) == 1 < len(outputs):
            title = f"the list passed to {posted.caller_name or 'all_gather'} contains the same tensor several times"
            self.find("shared buffer", title, posted.rank, posted.site, OWN_TENSORS)

    def complete(self, collective: Any) -> None:
        for call in collective.calls.values():
            self._compare(call)

    def moved(self, collective: Any) -> None:
        for call in collective.calls.values():
            self._renew(call)

    def met(self, sender: Any, receiver: Any) -> None:
        self._compare(receiver)

    def arrived(self, sender: Any, receiver: Any) -> None:
        self._compare(sender)
        self._renew(receiver)

    def waited(self, posted: Any) -> None:
        if posted.contents is not None:
            self._compare(posted)
            posted.contents = None

    def ended(self, job: RankJob) -> None:
        counts = Counter(
            (rank, posted.what.partition("(")[0], posted.site)
            for rank in job.ranks
            for posted in (work.posted for work in rank.unwaited.values())
            if posted.is_programs and len(posted.group.ranks) > 1
        )
        if counts:
            verbs = ", ".join(dict.fromkeys(verb for _, verb, _ in counts))
            places = [
                (rank, verb if count == 1 else f"{count} handles of {verb}", site)
                for (rank, verb, site), count in counts.items()
            ]
            title = f"{{ranks}} never waited for {verbs}, so results may be read too early"
            self.compare("missing wait", title, places, NEVER)

    def _renew(self, posted: Any) -> None:
        if posted.contents is not None:
            posted.contents = [content.renewed() for content in posted.contents]

    def _compare(self, posted: Any) -> None:
        if posted.contents is not None and not all(content.is_unchanged for content in posted.contents):
            verb = posted.what.partition("(")[0]
            title = f"{{ranks}} wrote to a tensor before {verb} had finished with it"
            self.find("buffer in use", title, posted.rank, posted.site, WAIT_FIRST)
            posted.contents = None


def is_watched(posted: Any) -> bool:
    """Return whether writes to the tensors of an operation are checked.

    Blocking messages are not checked. Neither are a scatter and the receivers of a broadcast, because data may reach a
    rank before all ranks have arrived.
    """
    if posted.way != "calls":
        return posted.caller_name not in ("send", "recv")  # they return after the message has arrived
    exchange = posted.exchange
    return not exchange.from_root or (exchange.me == exchange.root and exchange.collective == "broadcast")


WAIT_TO_READ = "call wait() on the handle before reading the tensor"
ALL_REDUCE = "use all_reduce if all ranks need the result, or read it only on the root"
QUIET = ("detach", "alias", "set_", "record_stream", "_has_compatible_shallow_copy_type")


def has_memory(tensor: Any) -> bool:
    """Return whether a value is a plain tensor with elements. A tensor without elements has no address of its own."""
    return is_plain(tensor) and tensor.numel() > 0


class Reads(Watcher):
    """Finds operators that read a buffer of a pending operation, or a buffer with undefined content."""

    def __init__(self) -> None:
        super().__init__()
        self._busy: dict[Rank, dict[int, Any]] = {}  # pending operations, by address
        self._undefined: dict[Rank, dict[int, Any]] = {}  # buffers of reduce on other ranks than the root

    def mode(self, rank: Rank) -> "ReadingMode":
        """Return the mode that observes a rank's operators."""
        return ReadingMode(self, rank)

    def posted(self, posted: Any) -> None:
        if posted.is_programs and posted.way != "sends":
            mine = self._busy.setdefault(posted.rank, {})
            mine.update(
                {tensor.untyped_storage().data_ptr(): posted for tensor in posted.tensors if has_memory(tensor)}
            )

    def waited(self, posted: Any) -> None:
        mine = self._busy.get(posted.rank, {})
        for tensor in filter(has_memory, posted.tensors):
            if mine.get(tensor.untyped_storage().data_ptr()) is posted:
                del mine[tensor.untyped_storage().data_ptr()]
        is_reduce = posted.is_programs and posted.what.startswith("reduce(")
        if is_reduce and posted.exchange.me != posted.exchange.root:
            undefined = self._undefined.setdefault(posted.rank, {})
            undefined.update(
                {tensor.untyped_storage().data_ptr(): posted for tensor in posted.tensors if has_memory(tensor)}
            )

    def looks(self, rank: Rank, reads: list[int], writes: list[int]) -> None:
        """Check the storage addresses that an operator of a rank reads and writes."""
        busy, undefined = self._busy.get(rank, {}), self._undefined.get(rank, {})
        for address in reads:
            if address in busy:
                verb, site = busy[address].what.partition("(")[0], busy[address].site
                title = f"a tensor is read while {verb} at {site} is pending"
                self.find("buffer in use", title, rank, find_site(), WAIT_TO_READ)
            if address in undefined:
                site = undefined.pop(address).site
                title = f"{{ranks}} read a tensor after reduce ({site}), but only the root has the result"
                self.find("undefined result", title, rank, find_site(), ALL_REDUCE)
        for address in writes:
            undefined.pop(address, None)

    def is_idle(self, rank: Rank) -> bool:
        """Return whether the rank has no memory to check."""
        return not self._busy.get(rank) and not self._undefined.get(rank)


class ReadingMode(TorchDispatchMode):
    """Passes the memory that each operator reads and writes to ``Reads``."""

    def __init__(self, reads: Reads, rank: Rank) -> None:
        super().__init__()
        self.reads, self.rank = reads, rank

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise torch imports its compiler, and each operator takes 2 ms

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self.reads.is_idle(self.rank) and not func.is_view:
            name = func.name().partition("::")[2].partition(".")[0]
            if not name.startswith(QUIET) and "c10d" not in func.name():
                plain = [argument for argument in args if is_plain(argument)]
                addresses = [tensor.untyped_storage().data_ptr() for tensor in plain]
                overwrites = name in ("zero_", "fill_", "copy_", "normal_", "uniform_")
                self.reads.looks(self.rank, addresses[overwrites:], addresses[:1] if overwrites else [])
        return func(*args, **(kwargs or {}))
