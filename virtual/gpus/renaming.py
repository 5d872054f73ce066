"""Devices that a program names, renamed on their way into torch."""

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

UNMOVED = ("cuda", "pin_memory")  # methods that return what they are called on
READ = ("cpu", "numpy", "tolist")
FACTORIES = ("set_default_device", "get_default_device", "empty_like", "new_empty")
CPU = torch.device("cpu")


def to_cpu(value: Any) -> Any:
    """Return the CPU for a device of CUDA, and all else as it is.

    >>> to_cpu("cuda:1"), to_cpu(torch.device("cuda")), to_cpu(1)
    ('cpu', device(type='cpu'), 1)
    """
    if isinstance(value, torch.device) and value.type == "cuda":
        return CPU
    if isinstance(value, str) and value.partition(":")[0] == "cuda":
        return "cpu"
    return value


def placed(value: Any) -> Any:
    """Return the CPU for a device argument, where a plain number is a GPU too."""
    return "cpu" if type(value) is int else to_cpu(value)


def _is_cpu(value: Any) -> bool:
    return isinstance(value, str | torch.device) and str(value).partition(":")[0] == "cpu"


class CudaOnCpu(TorchFunctionMode):
    """A context in which functions of torch that are asked for CUDA do their work on the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, named = getattr(func, "__name__", ""), kwargs or {}
        if name in READ or (name == "to" and any(map(_is_cpu, (*args[1:], named.get("device"))))):
            torch.cuda.synchronize()  # the host waits for what it reads
        if name in UNMOVED and args and isinstance(args[0], torch.Tensor):
            return args[0]
        if name == "is_pinned":
            return True
        if named:
            named = dict(named)
            named.pop("pin_memory", None)
            if named.get("device") is not None:
                named["device"] = placed(named["device"])
        if name in ("to", "type"):
            args = (args[0], *[placed(one) for one in args[1:]])
        elif name in FACTORIES:
            args = tuple(map(to_cpu, args))
        return func(*args, **named)
