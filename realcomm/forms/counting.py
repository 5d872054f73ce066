"""What a rank's communication comes to: each call of torch.distributed with its bytes and how many ranks take part."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

NAMES = {  # operations by the collective that they are, and which of their arguments is the whole buffer
    "c10d::allreduce_": ("all_reduce", 0),
    "c10d::_allgather_base_": ("all_gather", 0),
    "c10d::_reduce_scatter_base_": ("reduce_scatter", 1),
    "c10d::alltoall_base_": ("all_to_all", 0),
    "c10d::broadcast_": ("broadcast", 0),
    "c10d::send": ("send", 0),
    "_c10d_functional::all_reduce": ("all_reduce", 0),
    "_c10d_functional::all_gather_into_tensor": ("all_gather", -1),  # of which it returns the whole
    "_c10d_functional::reduce_scatter_tensor": ("reduce_scatter", 0),
    "_c10d_functional::all_to_all_single": ("all_to_all", 0),
}
PASSED_OVER = (  # each recv is another rank's send
    "c10d::recv_", "c10d::barrier", "_c10d_functional::wait_tensor", "_c10d_functional::_wrap_tensor_autograd",
)  # fmt: skip


class CountedCall(NamedTuple):
    """A call of this rank: the bytes of the whole buffer, on so many ranks; of a send, of the message."""

    collective: str
    nbytes: int
    ranks: int


class CountedCalls(TorchDispatchMode):
    """Within the context, note each call of torch.distributed, whoever makes it: torch's classes too, in backward too.

    Raises ValueError for a collective that is not known, so that none is missed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[CountedCall] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(each, DTensor) for each in types):
            return NotImplemented  # what it does with its local tensors is what comes here next
        found = func(*args, **(kwargs or {}))
        if "c10d" in func.namespace:
            self._note(func._schema.name, args, kwargs or {}, found)
        return found

    def _note(self, name: str, args: Any, kwargs: dict[str, Any], found: Any) -> None:
        if name in PASSED_OVER:
            return
        if name not in NAMES:
            raise ValueError(f"{name} is a call of torch.distributed that is not counted")
        collective, place = NAMES[name]
        nbytes = sum(each.numel() * each.element_size() for each in _tensors(found if place < 0 else args[place]))
        ranks = 2 if collective == "send" else _ranks([*args, *kwargs.values()])
        self.calls.append(CountedCall(collective, nbytes, ranks))


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)


def _ranks(args: list[Any]) -> int:
    """Return how many ranks the group among the arguments has: an object, or its name."""
    for each in args:
        if isinstance(each, torch.ScriptObject):
            try:
                return int(ProcessGroup.unbox(each).size())
            except RuntimeError:  # a reduction's kind, or a timeout
                continue
    name = next(each for each in reversed(args) if isinstance(each, str))
    return int(torch._C._distributed_c10d._resolve_process_group(name).size())  # type: ignore[arg-type]
