"""Parameters that FullyShardedDataParallel (FSDP 1) shards, whose tensors do not know the ranks of their shards."""

import gc
import sys

import torch
from torch.utils.weak import WeakIdKeyDictionary

_RANKS = WeakIdKeyDictionary()  # by parameter; () if it is not sharded


def find_shard_ranks(parameter: torch.Tensor) -> tuple[int, ...]:
    """Return the ranks that hold the shards of a parameter of FSDP 1; () for every other parameter.

    The first call for a model looks through all objects of the process.
    """
    if not getattr(parameter, "_fsdp_flattened", False):
        return ()
    if parameter not in _RANKS:
        handle_type = sys.modules["torch.distributed.fsdp._flat_param"].FlatParamHandle
        for handle in [one for one in gc.get_objects() if type(one) is handle_type]:
            group = getattr(handle.process_group, "group", None)
            ranks = group.ranks if group is not None and handle.uses_sharded_strategy else ()
            for one in (handle.flat_param, *(handle.flat_param._params or ())):
                _RANKS[one] = ranks
    found: tuple[int, ...] = _RANKS.get(parameter, ())
    return found
