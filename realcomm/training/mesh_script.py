"""Train a decoder language model on random tokens on the device mesh ``MESH``, and print the step time.

    torchrun --nproc-per-node=8 --nnodes=8 FILE --steps 20    on GPUs, with NCCL
    torchrun --nproc-per-node=4 FILE --small                  the same mesh and a small model on CPUs, with gloo

Ringlab wrote ``MESH``. The rest is plain PyTorch: FSDP 2, tensor and sequence parallelism, pipelines.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import destroy_process_group, get_rank, get_world_size, init_process_group
from torch.distributed._composable.replicate import replicate
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

MESH: dict[str, Any] = {
    "layers": 4, "width": 64, "heads": 8, "kv_heads": 4, "hidden": 128, "vocabulary": 512, "seq": 64,
    "precision": "bf16", "dp": 1, "tp": 2, "pp": 2, "vp": 1, "shard": 1, "sharding": "zero3", "micro_batch": 1,
    "grad_accum": 2, "recompute": "none", "compile": False,
}  # fmt: skip
PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16, "float32": torch.float32, "tf32": torch.float32}
LEARNING_RATE = 1e-4
SMALL = {"layers": 1, "width": 16, "hidden": 32, "vocabulary": 64, "seq": 16}  # per head or stage


class MeshAttention(nn.Module):
    """Causal attention with fewer key heads than query heads."""

    def __init__(self, about: dict[str, Any]) -> None:
        super().__init__()
        width, self.head = about["width"], about["width"] // about["heads"]
        self.queries = nn.Linear(width, width, bias=False)
        self.keys = nn.Linear(width, about["kv_heads"] * self.head, bias=False)
        self.values = nn.Linear(width, about["kv_heads"] * self.head, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the attention output."""
        q, k, v = (
            part(x).unflatten(-1, (-1, self.head)).transpose(1, 2) for part in (self.queries, self.keys, self.values)
        )
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        added: Tensor = self.out(attended.transpose(1, 2).flatten(-2))
        return added


class MeshMlp(nn.Module):
    """A gated MLP."""

    def __init__(self, about: dict[str, Any]) -> None:
        super().__init__()
        self.gate = nn.Linear(about["width"], about["hidden"], bias=False)
        self.up = nn.Linear(about["width"], about["hidden"], bias=False)
        self.down = nn.Linear(about["hidden"], about["width"], bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the MLP output."""
        added: Tensor = self.down(nn.functional.silu(self.gate(x)) * self.up(x))
        return added


class MeshBlock(nn.Module):
    """A transformer layer; with tensor parallelism, on a shard of the sequence."""

    def __init__(self, about: dict[str, Any]) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.RMSNorm(about["width"]), nn.RMSNorm(about["width"])
        self.attention, self.mlp = MeshAttention(about), MeshMlp(about)

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output."""
        x = x + self.attention(self.attention_norm(x))
        output: Tensor = x + self.mlp(self.mlp_norm(x))
        return output


class MeshStage(nn.Module):
    """A pipeline stage: layers, with the token embedding on the first stage and the LM head on the last."""

    def __init__(self, about: dict[str, Any], numbers: range, is_first: bool, is_last: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(about["vocabulary"], about["width"]) if is_first else None
        self.blocks = nn.ModuleList(MeshBlock(about) for _ in numbers)
        self.norm = nn.RMSNorm(about["width"]) if is_last else None
        self.head = nn.Linear(about["width"], about["vocabulary"], bias=False) if is_last else None
        self.run = recomputing(about["recompute"])

    def forward(self, x: Tensor) -> Tensor:
        """Return logits, or the input of the next stage."""
        x = x if self.words is None else self.words(x)
        for block in self.blocks:
            x = self.run(block, x)
        return x if self.norm is None or self.head is None else self.head(self.norm(x))


def recomputing(kind: str) -> Callable[[nn.Module, Tensor], Tensor]:
    """Return a function that runs a layer and saves all activations, selected activations, or only its input."""
    if kind == "none":
        return lambda block, x: block(x)
    if kind == "full":
        return lambda block, x: checkpoint(block, x, use_reentrant=False)

    def contexts() -> Any:
        seen = 0

        def policy(_: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
            nonlocal seen
            seen += op == torch.ops.aten.mm.default
            is_kept = "attention" in str(op) or (op == torch.ops.aten.mm.default and seen % 2)
            return CheckpointPolicy.MUST_SAVE if is_kept else CheckpointPolicy.PREFER_RECOMPUTE

        return create_selective_checkpoint_contexts(policy)

    return lambda block, x: checkpoint(block, x, use_reentrant=False, context_fn=contexts)


def divide_matrices(stage: MeshStage, mesh: DeviceMesh) -> None:
    """Apply tensor parallelism and sequence parallelism to a stage."""
    prepared_input = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
    plan = {
        "attention_norm": SequenceParallel(),
        "mlp_norm": SequenceParallel(),
        "attention": prepared_input,
        "mlp": prepared_input,
    }
    plan |= {f"attention.{name}": ColwiseParallel() for name in ("queries", "keys", "values")}
    plan |= {f"mlp.{name}": ColwiseParallel() for name in ("gate", "up")}
    plan |= {name: RowwiseParallel(output_layouts=Shard(1)) for name in ("attention.out", "mlp.down")}
    for block in stage.blocks:
        parallelize_module(block, mesh, plan)
    ends: dict[str, Any] = {}
    if stage.words is not None:
        ends["words"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1))
    if stage.head is not None:
        ends |= {
            "norm": SequenceParallel(),
            "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
        }
    if ends:
        parallelize_module(stage, mesh, ends)


def divide_data(stage: MeshStage, about: dict[str, Any], mesh: DeviceMesh) -> None:
    """Apply data parallelism to a stage: replicated, or sharded layer by layer."""
    if about["sharding"] in ("ddp", "zero1"):
        if about["dp"] > 1:
            replicate(stage, device_mesh=mesh["dp"])
        return
    axes = mesh["dp_replicate", "dp_shard"] if about["sharding"] == "hsdp" else mesh["dp"]
    policy = MixedPrecisionPolicy(PRECISIONS[about["precision"]], torch.float32)
    again = about["sharding"] != "zero2" and about["pp"] == 1
    for block in stage.blocks:
        fully_shard(block, mesh=axes, mp_policy=policy, reshard_after_forward=again)
    fully_shard(stage, mesh=axes, mp_policy=policy, reshard_after_forward=again)


def make_mesh(about: dict[str, Any], kind: str) -> DeviceMesh:
    """Return the device mesh of all ranks: pipeline stages furthest apart, tensor groups nearest."""
    if about["sharding"] == "hsdp":
        shape = (about["pp"], about["dp"] // about["shard"], about["shard"], about["tp"])
        return init_device_mesh(kind, shape, mesh_dim_names=("pp", "dp_replicate", "dp_shard", "tp"))
    return init_device_mesh(kind, (about["pp"], about["dp"], about["tp"]), mesh_dim_names=("pp", "dp", "tp"))


def make_stages(about: dict[str, Any], mesh: DeviceMesh, device: torch.device) -> list[MeshStage]:
    """Return this rank's stages, sharded on the mesh."""
    count, mine = about["pp"] * about["vp"], mesh.get_local_rank("pp")
    each = about["layers"] // count
    stages = []
    for number in range(mine, count, about["pp"]):
        layers = range(number * each, (number + 1) * each)
        stage = MeshStage(about, layers, number == 0, number == count - 1).to(device)
        if about["tp"] > 1:
            divide_matrices(stage, mesh["tp"])
        divide_data(stage, about, mesh)
        if about["compile"]:
            stage.compile()
        stages.append(stage)
    return stages


def loss_of(scores: Tensor, words: Tensor) -> Tensor:
    """Return the mean cross entropy of tokens."""
    return nn.functional.cross_entropy(scores.flatten(0, 1).float(), words.flatten())


def step_of(
    about: dict[str, Any], stages: list[MeshStage], mesh: DeviceMesh, device: torch.device
) -> Callable[[], None]:
    """Return a function that runs forward and backward on this rank's batch, in micro-batches or as a pipeline."""
    count, rows = about["grad_accum"], about["micro_batch"]
    replica = get_rank() // about["tp"] % about["dp"]  # stages and tensor groups of a replica share tokens
    drawn = torch.Generator(device).manual_seed(replica)

    def words(size: int) -> Tensor:
        return torch.randint(about["vocabulary"], (size, about["seq"]), generator=drawn, device=device)

    if about["pp"] == 1:

        def in_turn() -> None:
            for _ in range(count):
                tokens = words(rows)
                (loss_of(stages[0](tokens), tokens) / count).backward()

        return in_turn
    mine, stage_count = mesh.get_local_rank("pp"), about["pp"] * about["vp"]
    parts: list[Any] = [
        PipelineStage(stage, mine + place * about["pp"], stage_count, device, group=mesh.get_group("pp"))
        for place, stage in enumerate(stages)
    ]
    schedule: Any
    if about["vp"] > 1:
        schedule = ScheduleInterleaved1F1B(parts, count, loss_fn=loss_of)
    else:
        schedule = Schedule1F1B(parts[0], count, loss_fn=loss_of)

    def through() -> None:
        tokens = words(rows * count)
        inputs = (tokens,) if mine == 0 else ()
        schedule.step(*inputs, target=tokens) if mine == about["pp"] - 1 else schedule.step(*inputs)

    return through


def make_optimizer(about: dict[str, Any], stages: list[MeshStage]) -> torch.optim.Optimizer:
    """Return AdamW; with zero1, its states are sharded over the data axis."""
    parameters = [parameter for stage in stages for parameter in stage.parameters()]
    if about["sharding"] == "zero1" and about["dp"] > 1:
        return ZeroRedundancyOptimizer(parameters, torch.optim.AdamW, lr=LEARNING_RATE)
    return torch.optim.AdamW(parameters, lr=LEARNING_RATE)


def train(about: dict[str, Any], steps: int, device: torch.device) -> Iterator[float]:
    """Yield the seconds of each step."""
    mesh = make_mesh(about, device.type)
    stages = make_stages(about, mesh, device)
    forward_and_back, optimizer = step_of(about, stages, mesh, device), make_optimizer(about, stages)
    is_cast = about["sharding"] in ("ddp", "zero1") and about["precision"] in ("bf16", "fp16")
    wait = partial(torch.cuda.synchronize, device) if device.type == "cuda" else lambda: None
    for _ in range(steps):
        wait()
        begun = time.perf_counter()
        with torch.autocast(device.type, PRECISIONS[about["precision"]], enabled=is_cast):
            forward_and_back()
        optimizer.step()
        optimizer.zero_grad()
        wait()
        yield time.perf_counter() - begun


def made_small(about: dict[str, Any]) -> dict[str, Any]:
    """Shrink the model for a test with the same mesh; return its settings."""
    heads = about["tp"]
    layers = about["pp"] * about["vp"] * SMALL["layers"]
    sizes = {"layers": layers, "heads": heads, "kv_heads": heads, "width": SMALL["width"] * heads}
    sizes |= {"hidden": SMALL["hidden"] * heads, "vocabulary": SMALL["vocabulary"] * about["tp"]}
    return {**about, **sizes, "seq": SMALL["seq"] * about["tp"], "precision": "float32", "compile": False}


def main() -> None:
    """Train, and print the median step time without the first step, tokens per second, and memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--small", action="store_true", help="a small model on CPUs, by gloo")
    options = parser.parse_args()
    about = made_small(MESH) if options.small else MESH
    is_gpu = torch.cuda.is_available() and not options.small
    init_process_group("nccl" if is_gpu else "gloo")
    ranks = about["dp"] * about["tp"] * about["pp"]
    if get_world_size() != ranks:
        raise SystemExit(f"this mesh has {ranks} ranks, and torchrun has started {get_world_size()}")
    device = torch.device("cuda", get_rank() % torch.cuda.device_count()) if is_gpu else torch.device("cpu")
    if is_gpu:
        torch.cuda.set_device(device)
    torch.manual_seed(0)
    seconds = sorted([*train(about, max(2, options.steps), device)][1:])
    if get_rank() == 0:
        median = seconds[len(seconds) // 2]
        tokens = about["dp"] * about["micro_batch"] * about["grad_accum"] * about["seq"]
        memory = torch.cuda.max_memory_reserved(device) / 2**30 if is_gpu else 0.0
        line = f"step_s {median:.4f} tokens_per_s {tokens / median:.0f} memory_gb {memory:.1f}"
        print(line, flush=True)  # noqa: T201
    destroy_process_group()


if __name__ == "__main__":
    main()
