"""A transformer spread over ranks by torch's own classes, as a ``Parallelism`` says: what a rank has, and its step."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.nn.parallel import DistributedDataParallel

from collectives.training.parallelism import SHARDED, Parallelism
from realcomm.launching.group import own_device
from realcomm.launching.torch_process import importing_compiler
from realcomm.profiling.model_sources import Transformer, TransformerBlock, loss_of

with importing_compiler():  # which these import
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        ParallelStyle,
        PrepareModuleInput,
        RowwiseParallel,
        SequenceParallel,
        loss_parallel,
        parallelize_module,
    )

AXES = ("pipeline", "data", "tensor")  # the last one's ranks are neighbours, as in ``collectives.training.parallelism``
SCHEDULES = {"gpipe": ScheduleGPipe, "naive": ScheduleGPipe, "1f1b": Schedule1F1B}
Forward = Callable[[Tensor], float | None]  # carries out forward and backward of a batch; returns the loss


class Spread:
    """What a rank has of a model: ``model``, its ``optimizer``, and what carries out forward and backward."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    forward: Forward

    def __init__(
        self, model: Transformer, form: Parallelism, stages: tuple[tuple[str, ...], ...], mesh: DeviceMesh | None = None
    ) -> None:
        """Spread a whole model on the rank's device; ``stages`` are the names of the blocks of a pipeline's stages.

        ``mesh`` has the dimensions of AXES; it is of all ranks unless given.
        """
        self.form = form
        sizes = form.pipeline, form.data, form.tensor
        self.mesh = mesh or init_device_mesh(own_device().type, sizes, mesh_dim_names=AXES)
        self.place = dict(zip(AXES, self.mesh.get_coordinate() or (0, 0, 0), strict=True))
        if form.tensor > 1:
            divide_tensors(model, self.mesh["tensor"], form.sequence)
        if form.pipeline > 1:
            self._pipeline(model, stages)
        else:
            self.model = self._data(model)
            self.forward = partial(_forward, self.model, loss_parallel if form.tensor > 1 else nullcontext)
        self.optimizer = self._optimizer()

    def _optimizer(self) -> torch.optim.Optimizer:
        if self.form.form == "zero_redundancy":
            return ZeroRedundancyOptimizer(self.model.parameters(), torch.optim.AdamW, lr=1e-3)
        return torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def _data(self, model: Transformer) -> nn.Module:
        """Return the model with what averages its gradients over the data axis."""
        form, mesh = self.form, self.mesh["data"]
        if form.data == 1:
            return model
        if form.form in ("ddp", "zero_redundancy"):
            return DistributedDataParallel(model, process_group=mesh.get_group(), bucket_cap_mb=form.bucket_mb)
        if form.form == "hsdp":
            sizes = form.data // form.shard, form.shard
            mesh = init_device_mesh(own_device().type, sizes, mesh_dim_names=("replicas", "shard"))
        keeps = form.form not in SHARDED  # gathered parameters stay until backward is through
        for block in model.blocks:
            fully_shard(block, mesh=mesh, reshard_after_forward=not keeps)
        fully_shard(model, mesh=mesh, reshard_after_forward=False if keeps else None)
        return model

    def _pipeline(self, model: Transformer, stages: tuple[tuple[str, ...], ...]) -> None:
        """Keep this rank's stages of the model, and the schedule that they follow."""
        form, modules, group = self.form, dict(model.named_modules()), self.mesh["pipeline"].get_group()
        own = range(self.place["pipeline"], len(stages), form.pipeline)
        parts = [nn.Sequential(*(modules[name] for name in stages[stage])) for stage in own]
        cut = [PipelineStage(part, stage, len(stages), own_device(), group=group)
               for part, stage in zip(parts, own, strict=True)]  # fmt: skip
        self.model = nn.ModuleList(parts)
        self.schedule: Any = (
            ScheduleInterleaved1F1B([*cut], form.pieces, loss_fn=_loss)
            if form.schedule == "interleaved"
            else SCHEDULES[form.schedule](cut[0], form.pieces, loss_fn=_loss)
        )
        self.forward = self._forward_pipeline

    def _forward_pipeline(self, batch: Tensor) -> float | None:
        """Carry out a batch in microbatches; average the gradients of a stage over the data axis behind it."""
        losses = list[Tensor]()
        if self.place["pipeline"] == 0:
            self.schedule.step(batch)
        elif self.place["pipeline"] == self.form.pipeline - 1:
            self.schedule.step(target=batch, losses=losses)
        else:
            self.schedule.step()
        if self.form.data > 1:
            gradients = [each.grad for each in self.model.parameters() if each.grad is not None]
            flat = torch.cat([each.flatten() for each in gradients])
            dist.all_reduce(flat, group=self.mesh["data"].get_group())
            flat /= self.form.data
            for each, mean in zip(gradients, flat.split([each.numel() for each in gradients]), strict=True):
                each.copy_(mean.view_as(each))
        return sum(float(loss.detach()) for loss in losses) / len(losses) if losses else None


def mesh_of_one(rank: int, world_size: int) -> DeviceMesh:
    """Return a mesh that has only this rank, on which nothing travels; all ranks make theirs together."""
    own = [dist.new_group([one]) for one in range(world_size)][rank]
    assert isinstance(own, dist.ProcessGroup)
    return DeviceMesh.from_group([own] * len(AXES), own_device().type, mesh=[[[rank]]], mesh_dim_names=AXES)


def divide_tensors(model: Transformer, mesh: DeviceMesh, sequence: bool) -> None:
    """Divide the matrices of a transformer of kind llama as Megatron does, by torch's styles.

    Rows of queries, keys and values are put into an order in which a rank's piece has those of its heads.
    """
    size = mesh.size()
    given = Shard(1) if sequence else Replicate()
    for block in model.blocks:
        assert isinstance(block, TransformerBlock)
        attention, weight = block.attention, block.attention.qkv.weight
        parts = [part.chunk(size) for part in weight.data.split(attention.widths)]
        weight.data = torch.cat([piece for rank in zip(*parts, strict=True) for piece in rank])
        attention.widths = [width // size for width in attention.widths]
        styles: dict[str, ParallelStyle] = {
            "attention": PrepareModuleInput(input_layouts=given, desired_input_layouts=Replicate()),
            "attention.qkv": ColwiseParallel(),
            "attention.out": RowwiseParallel(output_layouts=given),
            "mlp": PrepareModuleInput(input_layouts=given, desired_input_layouts=Replicate()),
            "mlp.up": ColwiseParallel(),
            "mlp.gate": ColwiseParallel(),
            "mlp.down": RowwiseParallel(output_layouts=given),
        }
        if sequence:
            styles |= {
                "norm1": SequenceParallel(use_local_output=True),
                "norm2": SequenceParallel(use_local_output=True),
            }
        parallelize_module(block, mesh, styles)
    ends: dict[str, ParallelStyle] = {
        "words": RowwiseParallel(input_layouts=Replicate(), output_layouts=given),
        "head": ColwiseParallel(input_layouts=given, output_layouts=Shard(-1), use_local_output=False),
    }
    if sequence:
        ends["last_norm"] = SequenceParallel(use_local_output=True)
    parallelize_module(model, mesh, ends)


def _forward(model: nn.Module, context: Callable[[], AbstractContextManager[None]], batch: Tensor) -> float:
    with context():
        loss = loss_of(model(batch))
        loss.backward()
    return float(loss.full_tensor().detach() if isinstance(loss, DTensor) else loss.detach())


def _loss(found: Tensor, target: Tensor) -> Tensor:
    return loss_of(found)
