"""Distribute a model over ranks with torch's own classes, and run training steps on one rank's part."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import prod
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from collectives.training.parallelism import SHARDED, Parallelism
from collectives.training.recipe import Recipe
from realcomm.launching.group import own_device
from realcomm.launching.torch_process import importing_compiler
from realcomm.profiling.model_sources import Attention, Transformer, TransformerBlock
from realcomm.strategies.blocks import named_blocks
from realcomm.training.replica import optimizer_of

with importing_compiler():  # imported by these modules
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

AXES = ("pipeline", "data", "tensor")  # ranks of the last axis are neighbors
OF_HSDP = ("pipeline", "replicas", "shard", "tensor")
WHOLE = ("ddp", "zero_redundancy")  # strategies that replicate parameters over the data axis
SCHEDULES = {"gpipe": ScheduleGPipe, "naive": ScheduleGPipe, "1f1b": Schedule1F1B}


class Spread:
    """One rank's part of a distributed model, with its optimizer and the device mesh.

    ``place`` has this rank's coordinates in the mesh, by axis.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer

    def __init__(
        self,
        model: nn.Module,
        parallelism: Parallelism,
        recipe: Recipe,
        *,
        stages: Sequence[Sequence[str]] = (),
        units: Sequence[str] = (),
        mesh: DeviceMesh | None = None,
    ) -> None:
        """Distribute a whole model from the CPU, so that a GPU never holds more than this rank's part.

        ``stages`` lists the block names of each pipeline stage. ``units`` lists the modules whose parameters are
        gathered together. ``mesh`` must have the axes that ``mesh_of`` creates. Default: a new mesh over all ranks.
        """
        self.parallelism, self._units = parallelism, units
        self._schedule: Any = None
        # this rank's modules, by their names in the whole model
        self._own: dict[str, nn.Module] = {} if parallelism.pipeline > 1 else {"": model}
        self.mesh = mesh or mesh_of(parallelism)
        self._named = (self.mesh.mesh_dim_names or ("",))[0].removesuffix(AXES[0])
        self.place = self._find_place()
        if parallelism.tensor > 1:
            assert isinstance(model, Transformer)
            divide_tensors(model, self._along("tensor"), parallelism.sequence)
        if parallelism.pipeline > 1:
            self.model = self._pipeline(model, stages)
        else:
            self.model = self._data(model, model)
        self.optimizer = self._optimizer(recipe)

    def _find_place(self) -> dict[str, int]:
        coordinates = dict(zip(self.mesh.mesh_dim_names or (), self.mesh.get_coordinate() or (), strict=False))
        coordinates = {axis: coordinates.get(self._named + axis, 0) for axis in (*AXES, *OF_HSDP)}
        return {axis: coordinates[axis] for axis in AXES} | {
            "data": coordinates["data"] + coordinates["replicas"] * self.parallelism.shard + coordinates["shard"]
        }

    def _along(self, *axes: str) -> DeviceMesh:
        return self.mesh[tuple(self._named + axis for axis in axes)]

    @property
    def _averages(self) -> bool:
        """Whether gradients are averaged by one all_reduce after the last backward, not by DistributedDataParallel.

        DistributedDataParallel supports only one forward before each backward, and no sharded parameters.
        """
        parallelism = self.parallelism
        return (
            parallelism.data > 1 and parallelism.strategy in WHOLE and max(parallelism.pipeline, parallelism.tensor) > 1
        )

    def _optimizer(self, recipe: Recipe) -> torch.optim.Optimizer:
        kind, options = optimizer_of(recipe)
        if self.parallelism.strategy == "zero_redundancy":
            group = self._along("data").get_group()
            return ZeroRedundancyOptimizer(self.model.parameters(), kind, process_group=group, **options)
        optimizer: torch.optim.Optimizer = kind(self.model.parameters(), **options)
        return optimizer

    def _data(self, part: nn.Module, model: nn.Module) -> nn.Module:
        """Apply data parallelism to a part of the model, and return the part."""
        parallelism = self.parallelism
        if parallelism.data == 1 or self._averages:
            return move(part, own_device())
        if parallelism.strategy in WHOLE:
            move(part, own_device())
            group = self._along("data").get_group()
            return DistributedDataParallel(part, process_group=group, bucket_cap_mb=parallelism.bucket_mb)
        mesh = self._along("replicas", "shard") if parallelism.strategy == "hsdp" else self._along("data")
        keeps = parallelism.strategy not in SHARDED  # gathered parameters are kept until backward ends
        names = {module: name for name, module in model.named_modules()}
        for module in part.modules():
            if module is not part and names.get(module) in self._units:  # torch moves it to the GPU, then shards it
                fully_shard(module, mesh=mesh, reshard_after_forward=not keeps)
        fully_shard(part, mesh=mesh, reshard_after_forward=False if keeps else None)
        return part

    def _pipeline(self, model: nn.Module, stages: Sequence[Sequence[str]]) -> nn.Module:
        parallelism, blocks, group = self.parallelism, named_blocks(model, ""), self._along("pipeline").get_group()
        stage_numbers = range(self.place["pipeline"], len(stages), parallelism.pipeline)
        parts = [self._data(nn.Sequential(*(blocks[name] for name in stages[stage])), model) for stage in stage_numbers]
        self._own = {name: blocks[name] for stage in stage_numbers for name in stages[stage]}
        cut = [PipelineStage(part, stage, len(stages), own_device(), group=group)
               for part, stage in zip(parts, stage_numbers, strict=True)]  # fmt: skip
        self._schedule = (
            ScheduleInterleaved1F1B([*cut], parallelism.pieces, loss_fn=loss_of)
            if parallelism.schedule == "interleaved"
            else SCHEDULES[parallelism.schedule](cut[0], parallelism.pieces, loss_fn=loss_of)
        )
        return nn.ModuleList(parts)

    def gather_weights(self) -> dict[str, Tensor] | None:
        """Return the state_dict of the whole model on the first rank, None on other ranks. All ranks must call this."""
        weights = dict[str, Tensor]()
        for place, module in self._own.items():
            for name, tensor in module.state_dict().items():
                weight = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
                if self.parallelism.tensor > 1 and name.endswith("attention.qkv.weight"):
                    weight = self._in_order_of_model(module.get_submodule(name.rpartition(".qkv.")[0]), weight)
                weights[f"{place}.{name}" if place else name] = weight.cpu()
        if self.parallelism.pipeline == 1:
            return weights if dist.get_rank() == 0 else None
        group = self._along("pipeline").get_group()
        first = dist.get_global_rank(group, 0)
        parts: list[Any] | None = [None] * self.parallelism.pipeline if dist.get_rank() == first else None
        dist.gather_object(weights, parts, first, group)
        return {name: each for part in parts for name, each in part.items()} if parts and first == 0 else None

    def _in_order_of_model(self, attention: nn.Module, weight: Tensor) -> Tensor:
        """Return a query-key-value weight with its rows in the original order, undoing ``divide_tensors``."""
        assert isinstance(attention, Attention)
        ranks = (part.split(attention.widths) for part in weight.chunk(self.parallelism.tensor))
        return torch.cat([piece for kind in zip(*ranks, strict=True) for piece in kind])

    def forward_and_back(self, batch: Tensor, targets: Tensor) -> float | None:
        """Run forward and backward on this replica's batch. Return its mean loss, or None on ranks without a loss.

        The batch is split into micro-batches, which are processed one after another or as a pipeline.
        """
        context: Callable[[], AbstractContextManager[None]] = (
            loss_parallel if self.parallelism.tensor > 1 else nullcontext
        )
        with context():
            losses = self._in_turn(batch, targets) if self._schedule is None else self._through(batch, targets)
        if self._averages:
            self._average()
        return sum(losses) / len(losses) if losses else None

    def _in_turn(self, batch: Tensor, targets: Tensor) -> list[float]:
        losses, pieces = list[float](), self.parallelism.pieces
        for number, (piece, piece_targets) in enumerate(zip(batch.chunk(pieces), targets.chunk(pieces), strict=True)):
            waits = isinstance(self.model, DistributedDataParallel) and number < pieces - 1
            with self.model.no_sync() if waits else nullcontext():  # type: ignore[operator]
                loss = loss_of(self.model(piece), piece_targets)
                (loss / pieces).backward()
            losses.append(float(loss.full_tensor().detach() if isinstance(loss, DTensor) else loss.detach()))
        return losses

    def _through(self, batch: Tensor, targets: Tensor) -> list[float]:
        losses, schedule = list[Tensor](), self._schedule
        if self.place["pipeline"] == 0:
            schedule.step(batch)
        elif self.place["pipeline"] == self.parallelism.pipeline - 1:
            schedule.step(target=targets, losses=losses)
        else:
            schedule.step()
        return [float((each.full_tensor() if isinstance(each, DTensor) else each).detach()) for each in losses]

    def _average(self) -> None:
        """Average this rank's gradients over the data axis, in one flat buffer."""
        with_gradient = [each.grad for each in self.model.parameters() if each.grad is not None]
        gradients = [each.to_local() if isinstance(each, DTensor) else each for each in with_gradient]
        flat = torch.cat([each.flatten() for each in gradients])
        dist.all_reduce(flat, group=self._along("data").get_group())
        flat /= self.parallelism.data
        for each, mean in zip(gradients, flat.split([each.numel() for each in gradients]), strict=True):
            each.copy_(mean.view_as(each))


def move(module: nn.Module, device: torch.device) -> nn.Module:
    """Move a module's parameters and buffers to a device; return the module."""
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.device != device:
            tensor.data = tensor.data.to(device)
    return module


def mesh_of(parallelism: Parallelism, group: Callable[[int, int], dist.ProcessGroup] | None = None) -> DeviceMesh:
    """Return the device mesh of a strategy. Tensor-parallel ranks are adjacent, and pipeline stages are furthest apart.

    ``group(size, stride)`` returns this rank's group along an axis. Default: new groups. If ``group`` is given, the
    names of the axes begin with "own", because torch identifies a mesh by its ranks and names, not by its groups.
    """
    names: tuple[str, ...] = AXES
    sizes: tuple[int, ...] = (parallelism.pipeline, parallelism.data, parallelism.tensor)
    if parallelism.strategy == "hsdp":
        names = OF_HSDP
        sizes = parallelism.pipeline, parallelism.data // parallelism.shard, parallelism.shard, parallelism.tensor
    if group is None:
        return init_device_mesh(own_device().type, sizes, mesh_dim_names=names)
    groups = [group(size, prod(sizes[place + 1 :])) for place, size in enumerate(sizes)]
    names = tuple(map("own {}".format, names))
    ranks = torch.arange(prod(sizes)).view(sizes)
    return DeviceMesh.from_group(groups, own_device().type, mesh=ranks, mesh_dim_names=names)


def divide_tensors(model: Transformer, mesh: DeviceMesh, sequence: bool) -> None:
    """Apply tensor parallelism to a llama transformer as Megatron does, with torch's parallel styles.

    The rows of the query, key and value weights are reordered, so that each rank's shard has the rows of its heads.
    """
    size = mesh.size()
    layout = Shard(1) if sequence else Replicate()
    for block in model.blocks:
        assert isinstance(block, TransformerBlock)
        attention, weight = block.attention, block.attention.qkv.weight
        parts = [part.chunk(size) for part in weight.data.split(attention.widths)]
        weight.data = torch.cat([piece for rank in zip(*parts, strict=True) for piece in rank])
        attention.widths = [width // size for width in attention.widths]
        styles: dict[str, ParallelStyle] = {
            "attention": PrepareModuleInput(input_layouts=layout, desired_input_layouts=Replicate()),
            "attention.qkv": ColwiseParallel(),
            "attention.out": RowwiseParallel(output_layouts=layout),
            "mlp": PrepareModuleInput(input_layouts=layout, desired_input_layouts=Replicate()),
            "mlp.up": ColwiseParallel(),
            "mlp.gate": ColwiseParallel(),
            "mlp.down": RowwiseParallel(output_layouts=layout),
        }
        if sequence:
            styles |= {
                "norm1": SequenceParallel(use_local_output=True),
                "norm2": SequenceParallel(use_local_output=True),
            }
        parallelize_module(block, mesh, styles)
    ends: dict[str, ParallelStyle] = {
        "words": RowwiseParallel(input_layouts=Replicate(), output_layouts=layout),
        "head": ColwiseParallel(input_layouts=layout, output_layouts=Shard(-1), use_local_output=False),
    }
    if sequence:
        ends["last_norm"] = SequenceParallel(use_local_output=True)
    parallelize_module(model, mesh, ends)


def loss_of(scores: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross entropy of scores, whose last dimension has the classes or tokens."""
    return functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), targets.flatten())
