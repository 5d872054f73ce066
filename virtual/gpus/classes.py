"""Make torch's classes that take a device, such as DDP and GradScaler, use the CPU in place of a CUDA device."""

import os
import sys
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import device_mesh, fsdp
from torch.distributed.fsdp._fully_shard import _fsdp_init
from torch.optim import optimizer as optimizers
from torch.utils import _foreach_utils
from torch.utils.data import DataLoader

from virtual.gpus.kernels import install_batch_norm, shard_attention
from virtual.gpus.renaming import CPU, is_asked_by_torch, placed, to_cpu
from virtual.process.replaced import Replaced
from virtual.ranks.placement import ON_CPU, Placement, find_place, mark_place

Call = Callable[..., Any]


def install_classes(replaced: Replaced, placement: Placement) -> None:
    wrap, mesh, cuda_amp = replaced.wrap, device_mesh.DeviceMesh, torch.cuda.amp
    wrap(torch.nn.Module, "to", _move_module)
    wrap(torch, "set_default_device", partial(_set_default_device, placement))
    wrap(torch, "get_default_device", partial(_get_default_device, placement))
    replaced.put(torch, "Generator", _make_generators(torch.Generator, placement))
    wrap(torch.nn.parallel.DistributedDataParallel, "__init__", _init_ddp)
    for module in (dist, device_mesh):
        wrap(module, "init_device_mesh", _init_device_mesh)
    wrap(mesh, "__init__", partial(_init_mesh, placement))
    replaced.put(mesh, "device_type", property(_tell_type))
    wrap(fsdp.FullyShardedDataParallel, "__init__", partial(_init_fsdp, placement))
    replaced.put(_fsdp_init, "_move_states_to_device", lambda *states: _take_to_gpu(states[:2], placement))
    init_autocast, init_scaler = torch.amp.autocast_mode.autocast.__init__, torch.amp.GradScaler.__init__
    wrap(cuda_amp.autocast_mode.autocast, "__init__", partial(_init_cuda_autocast, init_autocast))
    wrap(torch.amp.autocast_mode.autocast, "__init__", _init_autocast)
    for scaler in (cuda_amp.GradScaler, torch.amp.GradScaler):
        replaced.put(scaler, "__init__", lambda self, *args, **named: init_scaler(self, "cpu", enabled=False))
    for place in (optimizers, _foreach_utils):  # as on GPUs: a few operators for all parameters
        replaced.put(place, "_get_foreach_kernels_supported_devices", lambda: ["cpu", "cuda"])
    wrap(torch, "from_numpy", _from_numpy)
    wrap(torch, "load", _load)
    wrap(DataLoader, "__init__", _init_loader)
    install_batch_norm(replaced)
    shard_attention()


def _move_module(original: Call, self: Any, *args: Any, **named: Any) -> Any:
    values = (*args, *named.values())
    types = {torch.device(value).type for value in values if isinstance(value, str | torch.device)}
    if "cpu" in types and not is_asked_by_torch(sys._getframe(2)):
        self.cpu()  # for the original method, everything is on the CPU already
    moved = [torch.device("cuda", argument) if type(argument) is int else argument for argument in args]
    return original(self, *moved, **named)


def _set_default_device(placement: Placement, original: Call, device: Any) -> None:
    default = torch.device("cuda", device) if type(device) is int else device and torch.device(device)
    is_cuda = default is not None and default.type == "cuda"
    placement.set_default(default if is_cuda else None)
    original(None if is_cuda else device)


def _get_default_device(placement: Placement, original: Call) -> Any:
    place = placement.default()
    return original() if place == ON_CPU else torch.device("cuda", place)


def _make_generators(original: Any, placement: Placement) -> type:
    class AnyGenerator(type(original)):  # type: ignore[misc]  # the metaclass is determined at run time
        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, original)

    class Generator(original, metaclass=AnyGenerator):  # type: ignore[misc]  # C++ reads torch's class
        def __new__(cls, device: Any = "cpu") -> Any:
            made = original.__new__(cls, placed(device))
            made.place = ON_CPU if to_cpu(device) is device and type(device) is not int else placement.number(device)
            return made

        place = ON_CPU

        @property
        def device(self) -> torch.device:
            is_cuda = self.place != ON_CPU and not is_asked_by_torch(sys._getframe(1))
            return torch.device("cuda", self.place) if is_cuda else CPU

    return Generator


def _init_ddp(
    original: Call,
    self: Any,
    module: Any,
    device_ids: Any = None,
    output_device: Any = None,
    *args: Any,
    **named: Any,
) -> None:
    places = [place for parameter in module.parameters() if (place := find_place(parameter)) is not None]
    is_on_cpu = ON_CPU in places
    group: Any = named.get("process_group") or dist.group.WORLD
    if is_on_cpu and not device_ids and "cpu" not in getattr(group, "backends", ("cpu",)):
        raise RuntimeError("No backend type associated with device type cpu")
    if is_on_cpu and device_ids:
        raise ValueError(
            "DistributedDataParallel device_ids and output_device arguments only work with single-device/"
            "multiple-device GPU modules or CPU modules, but got device_ids "
            f"{device_ids}, output_device {output_device}, and module parameters {{device(type='cpu')}}."
        )
    if not is_on_cpu and places and hasattr(group, "claim"):
        group.claim(places[0])
    original(self, module, None, None, *args, **named)


def _init_device_mesh(original: Call, device_type: Any, *args: Any, **named: Any) -> Any:
    mesh = original(device_type, *args, **named)
    mesh.is_of_cpu = device_type == "cpu"
    return mesh


def _init_mesh(placement: Placement, original: Call, self: Any, device_type: Any, *args: Any, **named: Any) -> None:
    self.is_of_cpu = device_type == "cpu" and not is_asked_by_torch(sys._getframe(2))
    if to_cpu(device_type) is not device_type and not placement.is_used:  # like torch
        placement.choose(int(os.environ.get("LOCAL_RANK", 0)))
    original(self, to_cpu(device_type), *args, **named)


def _tell_type(mesh: Any) -> str:
    """Return a mesh's device type. Torch's own modules see "cpu", and the program sees the type that it requested."""
    return "cpu" if mesh.is_of_cpu or is_asked_by_torch(sys._getframe(1)) else "cuda"


def _init_fsdp(
    placement: Placement, original: Call, self: Any, module: Any, *args: Any, device_id: Any = None, **named: Any
) -> None:
    if device_id is not None:
        _take_to_gpu((module.parameters(), module.buffers()), placement)
    original(self, module, *args, device_id=CPU, **named)


def _take_to_gpu(states: Iterable[Iterable[torch.Tensor]], placement: Placement) -> None:
    for tensor in chain.from_iterable(states):
        mark_place(tensor, placement.use())


def _init_autocast(original: Call, self: Any, device_type: Any = "cuda", *args: Any, **named: Any) -> None:
    is_cuda = to_cpu(device_type) != device_type
    if is_cuda and not args and named.get("dtype") is None:
        named["dtype"] = torch.bfloat16
    original(self, to_cpu(device_type), *args, **named)


def _init_cuda_autocast(
    init: Call, _: Call, self: Any, enabled: bool = True, dtype: Any = torch.bfloat16, cache_enabled: bool = True
) -> None:
    init(self, "cpu", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


def _load(original: Call, file: Any, map_location: Any = None, *args: Any, **named: Any) -> Any:
    return original(file, map_location if callable(map_location) else "cpu", *args, **named)


def _from_numpy(original: Call, array: Any) -> Any:
    tensor = original(array)
    mark_place(tensor, ON_CPU)
    return tensor


def _init_loader(original: Call, self: Any, *args: Any, **named: Any) -> None:
    for name in ("pin_memory", "pin_memory_device"):
        named.pop(name, None)
    original(self, *args, **named)
