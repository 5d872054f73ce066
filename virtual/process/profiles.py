"""Let ranks take turns with torch's profiler, because a process has only one. Other ranks get empty results.

The profiler observes the CPU only, because there is no GPU driver.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.autograd.profiler

from virtual.process.replaced import Replaced
from virtual.ranks.rank import Rank
from virtual.ranks.world import VirtualWorld


class EmptyResult:
    """The profiler's result for a rank that could not use it."""

    def events(self) -> list[Any]:
        return []

    experimental_event_tree = events

    def trace_start_ns(self) -> int:
        return 0

    def save(self, path: str) -> None:
        Path(path).write_text('{"traceEvents": []}\n')


class RankProfiles:
    """Lets one rank at a time use the process's profiler."""

    def __init__(self, world: VirtualWorld) -> None:
        self.world = world
        self._holder: Rank | None = None

    def install(self, replaced: Replaced) -> None:
        """Make torch's profiler check that no other rank uses it."""
        module: Any = torch.autograd.profiler  # torch exports none of these names
        for name in ("_prepare_profiler", "_enable_profiler"):
            replaced.put(module, name, self._beginning(getattr(module, name)))
        replaced.put(module.profile, "__init__", _without_gpus(module.profile.__init__))
        replaced.put(module, "_disable_profiler", self._ending(module._disable_profiler))

    def _beginning(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def begin(*args: Any, **named: Any) -> Any:
            rank = self.world.me()
            if self._holder is None:
                self._holder = rank
            return original(*args, **named) if self._holder is rank else None

        return begin

    def _ending(self, original: Callable[[], Any]) -> Callable[[], Any]:
        def end() -> Any:
            if self._holder is not self.world.me():
                return EmptyResult()
            self._holder = None
            return original()

        return end


def _without_gpus(original: Callable[..., None]) -> Callable[..., None]:
    def init(self: Any, *args: Any, **named: Any) -> None:
        original(
            self, *args, **{name: value for name, value in named.items() if name not in ("use_device", "use_cuda")}
        )

    return init
