"""Classes of torch that take a device, told to take the CPU."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import device_mesh, fsdp
from torch.optim import optimizer as optimizers
from torch.utils import _foreach_utils
from torch.utils.data import DataLoader

from virtual.gpus.batch_norm import install_batch_norm
from virtual.gpus.renaming import CPU, placed, to_cpu
from virtual.process.replaced import Replaced

Init = Callable[..., Any]


def install_classes(replaced: Replaced) -> None:
    """Have modules, wrappers, autocast and loaders take the CPU for CUDA."""
    module = torch.nn.Module
    replaced.put(module, "cuda", lambda self, *args, **named: self)
    replaced.put(module, "to", _moved(module.to))
    replaced.put(module, "to_empty", _emptied(module.to_empty))
    ddp = torch.nn.parallel.DistributedDataParallel
    replaced.put(ddp, "__init__", _without_devices(ddp.__init__))
    init_mesh = _first_on_cpu(device_mesh.init_device_mesh)
    replaced.put(device_mesh, "init_device_mesh", init_mesh)
    replaced.put(dist, "init_device_mesh", init_mesh)
    replaced.put(device_mesh.DeviceMesh, "__init__", _second_on_cpu(device_mesh.DeviceMesh.__init__))
    sharded = fsdp.FullyShardedDataParallel
    replaced.put(sharded, "__init__", _with_cpu(sharded.__init__))
    autocast = torch.amp.autocast_mode.autocast
    replaced.put(torch.cuda.amp.autocast_mode.autocast, "__init__", _cuda_autocast(autocast.__init__))
    replaced.put(autocast, "__init__", _autocast(autocast.__init__))
    scaler = torch.amp.GradScaler
    replaced.put(torch.cuda.amp.GradScaler, "__init__", _unscaled(scaler.__init__))
    replaced.put(scaler, "__init__", _unscaled(scaler.__init__))
    for place in (optimizers, _foreach_utils):  # as on GPUs, a few operators for all parameters
        replaced.put(place, "_get_foreach_kernels_supported_devices", lambda: ["cpu", "cuda"])
    replaced.put(torch, "load", _loaded(torch.load))
    replaced.put(DataLoader, "__init__", _unpinned(DataLoader.__init__))
    install_batch_norm(replaced)


def _moved(original: Init) -> Init:
    def to(self: Any, *args: Any, **named: Any) -> Any:
        return original(self, *map(placed, args), **{name: placed(value) for name, value in named.items()})

    return to


def _emptied(original: Init) -> Init:
    def to_empty(self: Any, *, device: Any, recurse: bool = True) -> Any:
        return original(self, device=placed(device), recurse=recurse)

    return to_empty


def _without_devices(original: Init) -> Init:
    def init(
        self: Any, module: Any, device_ids: Any = None, output_device: Any = None, *args: Any, **named: Any
    ) -> None:
        original(self, module, None, None, *args, **named)

    return init


def _first_on_cpu(original: Init) -> Init:
    def init_device_mesh(device_type: Any, *args: Any, **named: Any) -> Any:
        return original(to_cpu(device_type), *args, **named)

    return init_device_mesh


def _second_on_cpu(original: Init) -> Init:
    def init(self: Any, device_type: Any, *args: Any, **named: Any) -> None:
        original(self, to_cpu(device_type), *args, **named)

    return init


def _with_cpu(original: Init) -> Init:
    def init(self: Any, *args: Any, **named: Any) -> None:
        original(self, *args, **{**named, "device_id": CPU})

    return init


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


def _unpinned(original: Init) -> Init:
    def init(self: Any, *args: Any, **named: Any) -> None:
        for name in ("pin_memory", "pin_memory_device"):
            named.pop(name, None)
        original(self, *args, **named)

    return init
