"""Training steps of a calibration: they compute as a training does, and exchange messages in the sync's place.

What is exchanged are probes (``realcomm.measuring.probes``) and never the training's own collective. All ranks compute
each phase at once, as in a training, because they wait for each other after every exchange.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.distributed as dist

from collectives.costs.hops import Probe
from collectives.request import round_down
from collectives.training.workload import Training
from realcomm.calibration.blocks import StepTimes
from realcomm.execution.executor import Executor
from realcomm.launching.group import own_device
from realcomm.measuring.probes import probe_request
from realcomm.training.gradient_sync import AfterBackward, Average
from realcomm.training.models import build_model
from realcomm.training.replica import WARM_UP_STEPS, make_replica, take_step
from realcomm.training.shard import Shard
from realcomm.training.stopwatch import Stopwatch


class CalibrationTraining:
    """A training of one rank whose sync is replaced by probes."""

    def __init__(self, training: Training, rank: int, world_size: int, probes: Sequence[Probe]) -> None:
        self.rank, self.world_size, self.probes = rank, world_size, list(probes)
        self.replica = make_replica(build_model(training, training.seed), training)
        self._shard = Shard(training, rank, world_size)
        self._batches = iter(self._shard)
        self._exchanges = [self._exchange(probe) for probe in self.probes]
        self._watch = Stopwatch(rank)
        self._done = 0

    def take_steps(self, count: int) -> list[StepTimes]:
        """Return the times of so many steps, which use the probes in turn. All ranks call this."""
        dist.barrier()
        return [self._step() for _ in range(count)]

    def warm_up(self) -> None:
        """Take steps that do not count, one for each probe and a few at least."""
        self.take_steps(max(WARM_UP_STEPS, len(self.probes)))

    def _step(self) -> StepTimes:
        images, labels = self.next_batch()
        number = self._done % max(1, len(self.probes))
        exchange = self._exchanges[number] if self._exchanges else None
        marks: list[float] = []

        def stand_in(gradients: torch.Tensor) -> None:
            marks.append(self._watch.now())
            if exchange is not None:
                exchange(gradients)
            marks.append(self._watch.now())
            gradients.div_(self.world_size)
            marks.append(self._watch.now())
            if self.world_size > 1:
                dist.barrier()

        take_step(self.replica, images, labels, AfterBackward(stand_in), self._watch)
        self._done += 1
        own = self._watch.phases()
        begin, end, divided = map(self._watch.seconds, marks)
        probe = self.probes[number] if self.probes else None
        return StepTimes(own["forward"], own["backward"], own["optimizer"], probe, begin, end, divided - end)

    def next_batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the next images and labels of this rank's share, epoch after epoch."""
        found = next(self._batches, None)
        if found is None:
            self._batches = iter(self._shard)
            found = next(self._batches)
        return found

    def _exchange(self, probe: Probe) -> Average:
        """Return the probe as a sync: on the gradients themselves where its chunks are theirs."""
        request = probe_request(probe, self.world_size)
        gradients = self.replica.gradients
        if abs(request.elements - gradients.numel()) < self.world_size:
            request = replace(request, elements=round_down(request.algorithm, gradients.numel(), self.world_size))
            most = gradients[: request.elements]  # all of them, but for a few that chunks of one length leave over
            run = Executor(request, self.rank, self.world_size, device=own_device()).run
            return lambda gradients: run(most)
        executor = Executor(request, self.rank, self.world_size, device=own_device())
        buffer = torch.zeros(request.elements, device=own_device())
        return lambda gradients: executor.run(buffer)
