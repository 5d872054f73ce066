"""Find shards whose gradients each rank scales by a different factor, such as the norm of the rank's shards."""

from typing import Any

import numpy as np

from virtual.matching.samples import Values, find_ratio, is_close, take_sample
from virtual.ranks.rank import Rank
from virtual.ranks.watching import Watcher
from virtual.watching.training.logs import OptimizerLog, OptimizerLogs, find_shard_ranks

GLOBAL = (
    "clip by the norm over all shards: call torch.nn.utils.clip_grad_norm_ on the DTensors, or all_reduce the sum of "
    "squares before taking the root"
)
OF_FSDP_1 = "call clip_grad_norm_ of the FSDP module, which computes the norm over all shards"


class ShardFactors(Watcher):
    """Compares the factors that ranks apply to the gradients of their shards between backward and step."""

    def __init__(self, logs: OptimizerLogs) -> None:
        super().__init__()
        self.logs = logs
        self._computed: dict[Rank, dict[OptimizerLog, Values]] = {}
        self._told_of: set[tuple[int, int]] = set()

    def backward_ended(self, rank: Rank) -> None:
        sharded = [log for log in self.logs.of_rank(rank) if log.is_sharded and log.is_watched(log.count)]
        self._computed[rank] = {log: _sample(log) for log in sharded}

    def stepping(self, rank: Rank, optimizer: Any) -> None:
        log = self.logs.of(rank, optimizer)
        before = self._computed.get(rank, {}).get(log)
        if before is None or log.key in self._told_of:
            return
        factors = self.gather((log.key, log.count), log, find_ratio(_sample(log), before), len(log.sharing)) or {}
        known = {log: factor for log, factor in factors.items() if factor is not None}
        if known and not is_close(min(known.values()), max(known.values())):
            self._told_of.add(log.key)
            title = (
                f"before step {log.count + 1}, {{ranks}} multiply the gradients of their shards by different factors"
            )
            places = [
                (log.rank, f"multiplies its gradients by {factor:.4g}", log.last) for log, factor in known.items()
            ]
            advice = OF_FSDP_1 if find_shard_ranks(log.parameters[0]) else GLOBAL
            self.compare("gradient scale mismatch", title, places, advice)


def _sample(log: OptimizerLog) -> Values:
    gradients = [parameter.grad for parameter in log.parameters if parameter.grad is not None]
    local = [gradient.to_local() if hasattr(gradient, "to_local") else gradient for gradient in gradients]
    return np.concatenate([np.zeros(0), *(take_sample(gradient, 8) for gradient in local if gradient.numel())])
