"""Compute how long the calls of a recording take with NCCL's performance model.

A collective takes the predicted time after its last rank has entered. Calls of one communicator run one after the
other. Calls of different communicators run in parallel, each at full bandwidth.
"""

from collections import Counter
from functools import cached_property

import numpy as np

from collectives.declaration import NCCL
from collectives.records.columns import Bools, Floats, Ints
from replay.simulation.carriers import NetworkCarrier
from replay.simulation.templates import Shape
from simcomm.nccl.clusters import NcclCluster
from simcomm.nccl.descriptions import System
from simcomm.nccl.measured.calibration import predict_calibrated

BARRIER_BYTES = 4  # bytes of the all_reduce that implements a barrier
MESSAGE = "send_recv"
NOT_SHARED = "parallel NCCL groups do not share bandwidth"


class NcclCarrier(NetworkCarrier):
    """Simulates GPUs under NCCL. Collectives with one of Ringlab's algorithms are simulated message by message."""

    cluster: NcclCluster
    messages_cross, has_lines = False, True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.notes[NOT_SHARED] = None

    @cached_property
    def _known(self) -> dict[tuple[str, int, System], float]:
        return {}

    def default(self, verb: str) -> str:
        return NCCL

    def seconds_inside(self, shape: Shape, ranks: tuple[int, ...]) -> float | None:
        if self.algorithm(shape, ranks).has_program:
            return None
        nbytes = shape.elements * shape.itemsize
        if shape.verb in ("gather", "scatter"):  # the root's messages, one after the other
            return sum(self._seconds(MESSAGE, nbytes // len(ranks), (ranks[shape.root], rank)) for rank in ranks)
        if shape.verb == "barrier":
            return self._seconds("all_reduce", BARRIER_BYTES, ranks)
        return self._seconds(shape.verb, nbytes, ranks)

    def _seconds(self, collective: str, nbytes: int, ranks: tuple[int, ...]) -> float:
        """Return NCCL's predicted time for a collective in seconds. It is 0 for a single rank or an empty buffer."""
        if len(set(ranks)) == 1 or nbytes < 1:
            return 0.0
        local = Counter(rank // self.cluster.system.gpus for rank in ranks)
        part = self.cluster.system.part(len(local), max(local.values()))
        key = collective, nbytes, part
        if key not in self._known:
            settings = self.cluster.settings
            self._known[key] = predict_calibrated(part, collective, nbytes, settings=settings).seconds
        return self._known[key]

    def message_seconds(self, pairs: Ints, nbytes: Floats, exchanges: Bools, computed: Floats) -> Floats:
        gpus = self.cluster.system.gpus
        sizes = np.stack([nbytes.astype(np.int64), pairs[:, 0] // gpus == pairs[:, 1] // gpus], axis=1)
        kinds, which = np.unique(sizes, axis=0, return_inverse=True)
        seconds = [self._seconds(MESSAGE, size, (0, 1) if here else (0, gpus)) for size, here in kinds.tolist()]
        return np.asarray(np.array(seconds)[which.reshape(-1)], np.float64)
