"""``torch.cuda`` and ``torch.accelerator`` of virtual ranks: devices, streams and events."""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, Self

import torch

from simcomm.cluster.hardware import parts
from virtual.process.replaced import Replaced
from virtual.ranks.placement import Placement
from virtual.ranks.world import VirtualWorld


def answering(value: Any = None) -> Callable[..., Any]:
    """Return a new function that always returns ``value``, because dynamo rejects one function under two names."""
    return lambda *args, **named: value


class VirtualEvent:
    """A CUDA event. It records the time at which the GPU has finished all work launched before ``record``."""

    now: Callable[[], float]  # device time in seconds

    def __init__(self, *args: Any, **named: Any) -> None:
        self._time: float | None = None

    def record(self, stream: Any = None) -> None:
        self._time = self.now()

    def elapsed_time(self, other: "VirtualEvent") -> float:
        """Return the milliseconds from this event to ``other``. Raise RuntimeError if either was not recorded."""
        if self._time is None or other._time is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return (other._time - self._time) * 1e3

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    wait, query = answering(), answering(True)  # a rank has one stream


class VirtualStream:
    """A CUDA stream. All streams of a rank are the same stream, so they never wait for each other."""

    device = torch.device("cpu")
    cuda_stream = stream_id = device_index = 0
    device_type = 1
    priority = 0

    def __init__(self, *args: Any, **named: Any) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: Any) -> None:
        pass

    wait_stream, wait_event = answering(), answering()
    is_capturing, query = answering(False), answering(True)

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def record_event(self, event: VirtualEvent | None = None) -> VirtualEvent:
        event = event or VirtualEvent()
        event.record()
        return event


USUAL = "H100 SXM"  # the GPU that a program sees if --compute names none
DOES_NOTHING = (
    "empty_cache", "manual_seed", "manual_seed_all", "seed_all", "reset_peak_memory_stats", "init",
    "_lazy_init", "reset_accumulated_memory_stats", "ipc_collect", "set_per_process_memory_fraction", "set_stream",
    "set_sync_debug_mode", "set_rng_state", "set_rng_state_all",
)  # fmt: skip
IS_ZERO = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "utilization")
OF_ACCELERATOR = (
    "is_available", "device_count", "current_stream", "synchronize", "empty_cache", "set_stream",
    "reset_peak_memory_stats", *IS_ZERO[:4],
)  # fmt: skip  # functions that torch.accelerator has as well
RENAMED = {
    "device": ("device_index",),
    "set_device": ("set_device_index", "set_device_idx"),
    "current_device": ("current_device_index", "current_device_idx"),
}  # their names in torch.accelerator
CAPABILITY = {"pascal": (6, 0), "volta": (7, 0), "turing": (7, 5), "ampere": (8, 0), "ada": (8, 9), "hopper": (9, 0),
              "blackwell": (10, 0)}  # fmt: skip


class VirtualDevices:
    """The virtual GPUs that ``torch.cuda`` and ``torch.accelerator`` show to ranks."""

    def __init__(self, world: VirtualWorld, gpu: str, placement: Placement) -> None:
        self.world, self.placement, self.gpu = world, placement, gpu

    def now(self) -> float:
        rank = self.world.me()
        if rank is None:
            return 0.0
        self.world.computing.charge(rank)
        return rank.clock

    def synchronize(self) -> None:
        rank = self.world.me()
        if rank is not None:
            self.world.computing.charge(rank)
            rank.meet_device()

    @contextlib.contextmanager
    def within(self, device: Any) -> Iterator[None]:
        """Make ``device`` the rank's current GPU in a ``with`` block. None or a negative number changes nothing."""
        before = self.placement.use()
        self.placement.choose(before if device is None else device)
        try:
            yield
        finally:
            self.placement.choose(before)

    def install(self, replaced: Replaced) -> None:
        cuda, accelerator = torch.cuda, torch.accelerator
        replaced.put(VirtualEvent, "now", staticmethod(self.now))
        for name, function in self._functions().items():
            replaced.put(cuda, name, function)
        for name, function in self._functions().items():
            for other in RENAMED.get(name, (name,) if name in OF_ACCELERATOR else ()):
                replaced.put(accelerator, other, function)
        replaced.put(accelerator, "current_accelerator", lambda check_available=False: torch.device("cuda"))
        for name in ("range_push", "range_pop", "mark"):
            replaced.put(cuda.nvtx, name, answering())
        replaced.put(cuda.nvtx, "range", lambda *args, **named: contextlib.nullcontext())
        replaced.put(cuda.nccl, "version", answering((2, 27, 3)))
        replaced.put(torch.Tensor, "record_stream", answering())

    def _functions(self) -> dict[str, Any]:
        gpus, count = parts("GPU"), self.placement.per_node
        specification = {key: str(value.value) for key, value in gpus.get(self.gpu, gpus[USUAL]).items()}
        memory = int(float(specification["memory"].partition(" ")[0])) << 30
        major, minor = CAPABILITY.get(specification.get("generation", ""), (9, 0))
        properties = SimpleNamespace(
            name=f"NVIDIA {self.gpu}",
            total_memory=memory,
            major=major,
            minor=minor,
            multi_processor_count=int(specification.get("multiprocessors", "132")),
            warp_size=32,
            max_threads_per_multi_processor=2048,
            is_integrated=0,
            L2_cache_size=50 << 20,
            gcnArchName="",
            uuid="",
        )
        functions: dict[str, Any] = {name: answering() for name in DOES_NOTHING}
        functions |= {name: answering(0) for name in IS_ZERO}
        return functions | {
            "is_available": answering(True),
            "is_initialized": answering(True),
            "device_count": answering(count),
            "set_device": self.placement.choose,
            "current_device": self.placement.use,
            "device": self.within,
            "memory_stats": lambda *args, **named: defaultdict(int),
            "mem_get_info": answering((memory, memory)),
            "is_current_stream_capturing": answering(False),
            "synchronize": lambda *args: self.synchronize(),
            "Event": VirtualEvent,
            "Stream": VirtualStream,
            "stream": contextlib.nullcontext,
            "current_stream": lambda *args: VirtualStream(),
            "default_stream": lambda *args: VirtualStream(),
            "get_device_name": answering(properties.name),
            "get_device_properties": answering(properties),
            "get_device_capability": answering((major, minor)),
            "is_bf16_supported": answering(True),
            "default_generators": (torch.default_generator,) * count,
            "initial_seed": torch.initial_seed,
            "get_rng_state": lambda *args: torch.get_rng_state(),
            "get_rng_state_all": lambda: [torch.get_rng_state()],
        }
