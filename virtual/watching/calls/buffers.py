"""Find tensors that are written while an operation on them is pending, and missing waits."""

from collections import Counter
from typing import Any, NamedTuple
from weakref import WeakValueDictionary
from zlib import crc32

import torch

from virtual.matching.samples import is_plain
from virtual.ranks.neutral import Neutral
from virtual.ranks.rank import Rank, RankJob
from virtual.ranks.watching import Watcher

WAIT_FIRST = "call wait() on the handle before writing to the tensor, or pass a copy (clone)"
OWN_BUFFERS = "use a separate tensor for each irecv, or call wait() before the next one"
OWN_TENSORS = "create one tensor per rank: [torch.empty_like(t) for _ in range(world_size)], not [t] * world_size"
NEVER = "keep the handle and call wait() before using the tensor"


class Content(NamedTuple):
    """A tensor, its version counter and, if it is only a part of its storage, a checksum of its bytes."""

    tensor: torch.Tensor
    version: int
    checksum: int | None

    @classmethod
    def of(cls, tensor: torch.Tensor) -> "Content":
        if tensor.nbytes >= tensor.untyped_storage().nbytes():
            return cls(tensor, tensor._version, None)
        with Neutral():
            octets = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
            return cls(tensor, tensor._version, crc32(octets.numpy().data))

    def renewed(self) -> "Content":
        return self if self.checksum is None and self.is_unchanged else Content.of(self.tensor)

    @property
    def is_unchanged(self) -> bool:
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
        """Report an all_gather whose outputs are all the same tensor."""
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
    """Return whether writes to the operation's tensors are errors while the operation is pending."""
    if posted.way != "calls":
        return posted.caller_name not in ("send", "recv")  # they return after the message has arrived
    exchange = posted.exchange
    return not exchange.from_root or (exchange.me == exchange.root and exchange.collective == "broadcast")
