"""Make torch's classes that take a device use the CPU in place of CUDA."""

import os
import sys
from collections.abc import Callable, Iterable
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

Init = Callable[..., Any]


def install_classes(replaced: Replaced, placement: Placement) -> None:
    """Make modules, wrappers, autocast and data loaders use the CPU in place of CUDA."""
    module = torch.nn.Module
    replaced.put(module, "to", _moved(module.to))
    replaced.put(torch, "set_default_device", _defaulting(torch.set_default_device, placement))
    replaced.put(torch, "get_default_device", _default(torch.get_default_device, placement))
    replaced.put(torch, "Generator", _make_generators(torch.Generator, placement))
    ddp = torch.nn.parallel.DistributedDataParallel
    replaced.put(ddp, "__init__", _without_devices(ddp.__init__))
    init_mesh = _noting_cpu(device_mesh.init_device_mesh)
    replaced.put(device_mesh, "init_device_mesh", init_mesh)
    replaced.put(dist, "init_device_mesh", init_mesh)
    mesh = device_mesh.DeviceMesh
    replaced.put(mesh, "__init__", _on_cpu(mesh.__init__, placement))
    replaced.put(mesh, "device_type", property(_tell_type))
    sharded = fsdp.FullyShardedDataParallel
    replaced.put(sharded, "__init__", _with_cpu(sharded.__init__, placement))
    replaced.put(_fsdp_init, "_move_states_to_device", lambda *states: _take_to_gpu(states[:2], placement))
    autocast = torch.amp.autocast_mode.autocast
    replaced.put(torch.cuda.amp.autocast_mode.autocast, "__init__", _cuda_autocast(autocast.__init__))
    replaced.put(autocast, "__init__", _autocast(autocast.__init__))
    scaler = torch.amp.GradScaler
    replaced.put(torch.cuda.amp.GradScaler, "__init__", _unscaled(scaler.__init__))
    replaced.put(scaler, "__init__", _unscaled(scaler.__init__))
    for place in (optimizers, _foreach_utils):  # as on GPUs: a few operators for all parameters
        replaced.put(place, "_get_foreach_kernels_supported_devices", lambda: ["cpu", "cuda"])
    replaced.put(torch, "from_numpy", _left_on_cpu(torch.from_numpy))
    replaced.put(torch, "load", _loaded(torch.load))
    replaced.put(DataLoader, "__init__", _unpinned(DataLoader.__init__))
    install_batch_norm(replaced)
    shard_attention()


def _moved(original: Init) -> Init:
    def to(self: Any, *args: Any, **named: Any) -> Any:
        devices = [
            torch.device(argument) for argument in (*args, *named.values()) if isinstance(argument, str | torch.device)
        ]
        if any(device.type == "cpu" for device in devices) and not is_asked_by_torch(sys._getframe(1)):
            self.cpu()  # for the original method, everything is on the CPU already
        return original(
            self, *[torch.device("cuda", argument) if type(argument) is int else argument for argument in args], **named
        )

    return to


def _defaulting(original: Init, placement: Placement) -> Init:
    def set_default_device(device: Any) -> None:
        default = torch.device("cuda", device) if type(device) is int else device and torch.device(device)
        is_cuda = default is not None and default.type == "cuda"
        placement.set_default(default if is_cuda else None)
        original(None if is_cuda else device)

    return set_default_device


def _default(original: Init, placement: Placement) -> Init:
    def get_default_device() -> Any:
        place = placement.default()
        return original() if place == ON_CPU else torch.device("cuda", place)

    return get_default_device


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


def _without_devices(original: Init) -> Init:
    def init(
        self: Any, module: Any, device_ids: Any = None, output_device: Any = None, *args: Any, **named: Any
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

    return init


def _noting_cpu(original: Init) -> Init:
    def init_device_mesh(device_type: Any, *args: Any, **named: Any) -> Any:
        mesh = original(device_type, *args, **named)
        mesh.is_of_cpu = device_type == "cpu"
        return mesh

    return init_device_mesh


def _on_cpu(original: Init, placement: Placement) -> Init:
    def init(self: Any, device_type: Any, *args: Any, **named: Any) -> None:
        self.is_of_cpu = device_type == "cpu" and not is_asked_by_torch(sys._getframe(1))
        if to_cpu(device_type) is not device_type and not placement.is_used:  # like torch
            placement.choose(int(os.environ.get("LOCAL_RANK", 0)))
        original(self, to_cpu(device_type), *args, **named)

    return init


def _tell_type(mesh: Any) -> str:
    """Return "cpu" if torch itself asks or the program created the mesh on the CPU, otherwise "cuda"."""
    return "cpu" if mesh.is_of_cpu or is_asked_by_torch(sys._getframe(1)) else "cuda"


def _with_cpu(original: Init, placement: Placement) -> Init:
    def init(self: Any, module: Any, *args: Any, device_id: Any = None, **named: Any) -> None:
        if device_id is not None:
            _take_to_gpu((module.parameters(), module.buffers()), placement)
        original(self, module, *args, device_id=CPU, **named)

    return init


def _take_to_gpu(states: Iterable[Iterable[torch.Tensor]], placement: Placement) -> None:
    for tensor in chain.from_iterable(states):
        mark_place(tensor, placement.use())


def _autocast(original: Init) -> Init:
    def init(self: Any, device_type: Any = "cuda", *args: Any, **named: Any) -> None:
        is_cuda = to_cpu(device_type) != device_type
        if is_cuda and not args and named.get("dtype") is None:
            named["dtype"] = torch.bfloat16
        original(self, to_cpu(device_type), *args, **named)

    return init


def _cuda_autocast(original: Init) -> Init:
    def init(self: Any, enabled: bool = True, dtype: Any = torch.bfloat16, cache_enabled: bool = True) -> None:
        original(self, "cpu", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)

    return init


def _unscaled(original: Init) -> Init:
    def init(self: Any, *args: Any, **named: Any) -> None:
        original(self, "cpu", enabled=False)

    return init


def _loaded(original: Init) -> Init:
    def load(file: Any, map_location: Any = None, *args: Any, **named: Any) -> Any:
        return original(file, map_location if callable(map_location) else "cpu", *args, **named)

    return load


def _left_on_cpu(original: Init) -> Init:
    def from_numpy(array: Any) -> Any:
        tensor = original(array)
        mark_place(tensor, ON_CPU)
        return tensor

    return from_numpy


def _unpinned(original: Init) -> Init:
    def init(self: Any, *args: Any, **named: Any) -> None:
        for name in ("pin_memory", "pin_memory_device"):
            named.pop(name, None)
        original(self, *args, **named)

    return init
