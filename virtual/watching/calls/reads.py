"""Find reads of tensors while they are received or reduced, and of results that only the root has."""

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from virtual.matching.samples import is_plain
from virtual.ranks.rank import Rank
from virtual.ranks.sites import find_site
from virtual.ranks.watching import Watcher

WAIT_FIRST = "call wait() on the handle before reading the tensor"
ALL_REDUCE = "use all_reduce if all ranks need the result, or read it only on the root"
QUIET = ("detach", "alias", "set_", "record_stream", "_has_compatible_shallow_copy_type")


def has_memory(tensor: Any) -> bool:
    """Return whether a tensor has its own address; tensors without elements have none."""
    return is_plain(tensor) and tensor.numel() > 0


class Reads(Watcher):
    """Tracks the memory that a rank must not read; ``ReadingMode`` observes every operator."""

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
        """Check the addresses that an operator of a rank reads and writes."""
        busy, undefined = self._busy.get(rank, {}), self._undefined.get(rank, {})
        for address in reads:
            if address in busy:
                verb, site = busy[address].what.partition("(")[0], busy[address].site
                title = f"a tensor is read while {verb} at {site} is pending"
                self.find("buffer in use", title, rank, find_site(), WAIT_FIRST)
            if address in undefined:
                site = undefined.pop(address).site
                title = f"{{ranks}} read a tensor after reduce ({site}), but only the root has the result"
                self.find("undefined result", title, rank, find_site(), ALL_REDUCE)
        for address in writes:
            undefined.pop(address, None)

    def is_idle(self, rank: Rank) -> bool:
        """Return whether there is nothing to check."""
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
