"""Let ranks take turns with the process's only torch profiler. The other ranks get empty results."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.autograd.profiler

from virtual.process.replaced import Replaced
from virtual.ranks.world import VirtualWorld


class EmptyResult:
    """The profiler's result for a rank that could not use the profiler, because another rank was using it."""

    def events(self) -> list[Any]:
        return []

    experimental_event_tree = events

    def trace_start_ns(self) -> int:
        return 0

    def save(self, path: str) -> None:
        Path(path).write_text('{"traceEvents": []}\n')


def install_profiles(world: VirtualWorld, replaced: Replaced) -> None:
    module: Any = torch.autograd.profiler  # torch exports none of these names
    holder = None

    def begin(original: Callable[..., Any], *args: Any, **named: Any) -> Any:
        nonlocal holder
        holder = holder or world.me()
        return original(*args, **named) if holder is world.me() else None

    def end(original: Callable[[], Any]) -> Any:
        nonlocal holder
        if holder is not world.me():
            return EmptyResult()
        holder = None
        return original()

    for name in ("_prepare_profiler", "_enable_profiler"):
        replaced.wrap(module, name, begin)
    replaced.wrap(module, "_disable_profiler", end)
    replaced.wrap(module.profile, "__init__", _init_without_gpus)


def _init_without_gpus(
    original: Callable[..., None], self: Any, *args: Any, use_device: Any = None, use_cuda: Any = None, **named: Any
) -> None:
    original(self, *args, **named)
