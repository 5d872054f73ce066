"""Functional collectives on tensors without data: torch asks for shapes alone, and what they take is posted here."""

from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _resolve_process_group  # type: ignore[attr-defined]
from torch.utils.weak import WeakIdKeyDictionary

NAMESPACE = "_c10d_functional"


class FunctionalCollectives:
    """What a rank has posted by functional collectives and does not wait for yet, by the tensors of the results."""

    def __init__(self) -> None:
        self._works = WeakIdKeyDictionary()

    def carry_out(self, func: Any, args: Any, kwargs: dict[str, Any], result: Any) -> None:
        """Post the collective whose results torch has made, or wait for one."""
        name = func._schema.name.partition("::")[2]
        said = dict(zip((one.name for one in func._schema.arguments), args, strict=False)) | kwargs
        if name == "wait_tensor":
            work = self._works.pop(said["tensor"], None)
            if work is not None:
                work.wait()
        elif "group_name" in said:
            outs = [result] if isinstance(result, torch.Tensor) else list(result)
            work = _post(name, said, outs)
            for out in outs:
                self._works[out] = work


def _post(name: str, said: dict[str, Any], outs: list[torch.Tensor]) -> Any:
    group: Any = _resolve_process_group(said["group_name"])
    ins = said.get("inputs") or [said["input"]]
    op = getattr(dist.ReduceOp, said["reduce_op"].upper()) if "reduce_op" in said else None
    if name.startswith("all_reduce"):
        return group.allreduce(outs, op)
    if name.startswith("all_gather"):
        return group.all_gather_single_coalesced(outs, ins)
    if name.startswith("reduce_scatter"):
        return group.reduce_scatter_single_coalesced(outs, ins, op)
    if name.startswith("all_to_all"):
        return group.all_to_all_single(outs[0], ins[0], said["output_split_sizes"], said["input_split_sizes"])
    if name.startswith("broadcast"):
        return group.broadcast(outs, SimpleNamespace(rootRank=said["src"]))
    raise NotImplementedError(f"{NAMESPACE}.{name} is not known without data")
