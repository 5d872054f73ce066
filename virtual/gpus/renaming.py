"""Run torch's CUDA calls on the CPU, and let each tensor report the device that the program chose."""

import os
import sys
from functools import lru_cache
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from virtual.matching.samples import find_tensors
from virtual.ranks.placement import ON_CPU, Placement, find_common_place, find_place, mark_place
from virtual.ranks.sites import OF_TORCH, OURS

READ = ("cpu", "numpy", "tolist")
CPU = torch.device("cpu")
OURSELVES = (OF_TORCH, str(OURS / "virtual") + os.sep)
QUERIES = {torch.Tensor.device: "device", torch.Tensor.is_cuda: "is_cuda", torch.Tensor.is_cpu: "is_cpu"}


def to_cpu(value: Any) -> Any:
    """Replace a CUDA device by the CPU. Return every other value unchanged.

    >>> to_cpu("cuda:1"), to_cpu(torch.device("cuda")), to_cpu(1)
    ('cpu', device(type='cpu'), 1)
    """
    if isinstance(value, torch.device) and value.type == "cuda":
        return CPU
    if isinstance(value, str) and value.partition(":")[0] == "cuda":
        return "cpu"
    return value


def placed(value: Any) -> Any:
    """Replace a CUDA device or a GPU's index by the CPU. Return every other value unchanged."""
    return "cpu" if type(value) is int else to_cpu(value)


def _is_device(value: Any) -> bool:
    return isinstance(value, torch.device | str) or type(value) is int


@lru_cache(maxsize=4096)
def _is_of_torch(file: str) -> bool:
    return file.startswith(OURSELVES)


@lru_cache(maxsize=4096)
def _communicates(file: str) -> bool:
    return file.startswith(OF_TORCH + "distributed" + os.sep)


def is_asked_by_torch(frame: FrameType) -> bool:
    """Return whether a frame is in a module of torch or of ``virtual``. These modules see all tensors on the CPU."""
    return _is_of_torch(frame.f_code.co_filename)


class CudaOnCpu(TorchFunctionMode):
    """A torch function mode that runs torch calls for a CUDA device on the CPU."""

    def __init__(self, placement: Placement) -> None:
        super().__init__()
        self.placement = placement

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, named = getattr(func, "__name__", ""), kwargs or {}
        if name == "__get__" and func.__self__ in QUERIES and not is_asked_by_torch(sys._getframe(1)):
            return self._answer(QUERIES[func.__self__], args[0])
        if name in READ:
            torch.cuda.synchronize()  # the host waits for the value
        if name in ("to", "cuda", "cpu") and args and isinstance(args[0], torch.Tensor):
            return self._move(func, name, args, named)
        if name == "pin_memory" and args and isinstance(args[0], torch.Tensor):
            return args[0]
        if name == "is_pinned":
            return True
        place, is_said = None, False
        if named:
            named = dict(named)
            named.pop("pin_memory", None)
            device = named.get("device")
            if device is not None:
                place, is_said = self._place_of(device, sys._getframe(1)), True
                named["device"] = placed(device)
        if name == "type":
            args = (args[0], *[placed(argument) for argument in args[1:]])
        result = func(*args, **named)
        made = [tensor for tensor in find_tensors((result,)) if find_place(tensor) is None]
        if made and not is_said:
            inputs = find_tensors((*args, *named.values()))
            place = find_common_place(inputs) if inputs else self._place_of_new(sys._getframe(1))
        if place is not None:
            for tensor in made:
                mark_place(tensor, place)
        return result

    def _place_of_new(self, frame: FrameType) -> int | None:
        """Return the default device for a new tensor, or None if torch.distributed creates the tensor."""
        return None if _communicates(frame.f_code.co_filename) else self.placement.default()

    def _place_of(self, device: Any, frame: FrameType) -> int | None:
        """Return the requested device, or None if a module of torch requests the CPU, where it sees all tensors."""
        if to_cpu(device) is not device or type(device) is int:
            return self.placement.number(device)
        return None if is_asked_by_torch(frame) else ON_CPU

    def _answer(self, query: str, tensor: torch.Tensor) -> Any:
        place = find_place(tensor)
        if query != "device":
            return (place == ON_CPU) == (query == "is_cpu")
        return CPU if place == ON_CPU else torch.device("cuda", self.placement.current() if place is None else place)

    def _copy(self, tensor: torch.Tensor) -> torch.Tensor:
        world = self.placement.world
        rank = world.me()
        if rank is None:
            return tensor.clone()
        world.computing.charge(rank)
        copy = tensor.clone()
        world.computing.forget(rank)
        return copy

    def _move(self, func: Any, name: str, args: Any, named: dict[str, Any]) -> Any:
        tensor, *rest = args
        device = named.get("device")
        if name == "cpu":
            place: int | None = ON_CPU
        elif name == "cuda":
            place = self.placement.number(
                rest[0] if rest and _is_device(rest[0]) else "cuda" if device is None else device
            )
        else:
            devices = [argument for argument in [*rest, device] if _is_device(argument)]
            other = next(iter(find_tensors([*rest, named.get("other")])), None)
            place = self._place_of(devices[0], sys._getframe(2)) if devices else None
            place = find_place(other) if other is not None else place
            if place == ON_CPU:
                torch.cuda.synchronize()
        before = find_place(tensor)
        if name == "to":
            rest = [placed(argument) for argument in rest]
            named = {key: placed(value) for key, value in named.items()}
            moved = func(tensor, *rest, **named)
        else:
            moved = tensor
        place = before if place is None else place
        if moved is tensor and place not in (None, before) and (before is not None or place == ON_CPU):
            moved = self._copy(tensor)
        if place is not None and (moved is not tensor or before is None):
            mark_place(moved, place)
        return moved
