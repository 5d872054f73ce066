"""A simulated GPU: streams with timed work, and CUDA events that carry the times."""

import pytest
import torch

from realcomm.execution import device_clock
from realcomm.training import stopwatch


class Stream:
    """A stream of a GPU; ``ready`` is when its queued work ends."""

    def __init__(self, gpu: "SimulatedGpu") -> None:
        self._gpu, self.ready = gpu, 0.0

    def queue(self, seconds: float) -> None:
        self.ready = max(self.ready, self._gpu.host) + seconds

    def wait_stream(self, other: "Stream") -> None:
        self.ready = max(self.ready, other.ready)


class SimulatedGpu:
    """A compute stream, a communication stream, and the host's time, which only waits advance."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        """Replace torch's GPU in this process. The clocks read the simulated host's time."""
        self.host = 100.0
        self.compute, self.channel = Stream(self), Stream(self)
        patch.setattr(stopwatch, "own_device", lambda: torch.device("cuda", 0))
        patch.setattr(torch.cuda, "current_stream", lambda device=None: self.compute)
        patch.setattr(torch.cuda, "synchronize", self.synchronize)
        patch.setattr(torch.cuda, "Event", lambda enable_timing=False: Event(self))
        patch.setattr(device_clock, "perf_counter", lambda: self.host)

    def synchronize(self, device: object = None) -> None:
        self.host = max(self.host, self.compute.ready, self.channel.ready)


class Event:
    def __init__(self, gpu: SimulatedGpu) -> None:
        self._gpu, self._at = gpu, float("nan")

    def record(self, stream: Stream) -> None:
        self._at = max(stream.ready, self._gpu.host)

    def query(self) -> bool:
        return self._at <= self._gpu.host

    def synchronize(self) -> None:
        self._gpu.host = max(self._gpu.host, self._at)

    def elapsed_time(self, later: "Event") -> float:
        return 1e3 * (later._at - self._at)
