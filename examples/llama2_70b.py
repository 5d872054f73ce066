"""Train Llama 2 70B on random tokens, with fully_shard and tensor parallelism over 8 GPUs.

    ringlab virtual --ranks 64 --fake --only 0 --gpu --on dgx-h100 --compute "H100 SXM" examples/llama2_70b.py

Each data rank has ``BATCH`` sequences of 4,096 tokens. The shapes are those of the paper,
https://arxiv.org/abs/2307.09288. ``examples/llama2_70b.toml`` describes the same training for ``predict`` and
``search``.
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, loss_parallel, parallelize_module
from torch.utils.checkpoint import checkpoint

WIDTH, HEADS, GROUPS, INNER, WORDS, CONTEXT = 8192, 64, 8, 28_672, 32_000, 4096
LAYERS, BATCH, TENSOR, STEPS = int(os.environ.get("LAYERS", "80")), int(os.environ.get("BATCH", "1")), 8, 2


def linear(into: int, out_of: int) -> nn.Linear:
    """Return a linear layer without a bias."""
    return nn.Linear(into, out_of, bias=False)


class Attention(nn.Module):
    """Attention of 64 heads, whose keys and values are of 8 groups."""

    def __init__(self) -> None:
        super().__init__()
        narrow = GROUPS * WIDTH // HEADS
        self.q, self.k, self.v = linear(WIDTH, WIDTH), linear(WIDTH, narrow), linear(WIDTH, narrow)
        self.o = linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Return what is attended to."""
        batch, length, _ = x.shape
        heads = [one(x).view(batch, length, -1, WIDTH // HEADS).transpose(1, 2) for one in (self.q, self.k, self.v)]
        found = F.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=True)
        result: Tensor = self.o(found.transpose(1, 2).reshape(batch, length, -1))
        return result


class Block(nn.Module):
    """Attention and a gated perceptron, each behind a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.attention, self.between = nn.RMSNorm(WIDTH), Attention(), nn.RMSNorm(WIDTH)
        self.gate, self.up, self.down = linear(WIDTH, INNER), linear(WIDTH, INNER), linear(INNER, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Return what the next block is given."""
        x = x + self.attention(self.before(x))
        h = self.between(x)
        result: Tensor = x + self.down(F.silu(self.gate(h)) * self.up(h))
        return result


class Llama(nn.Module):
    """All blocks, each computed again in backward."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.blocks = nn.Embedding(WORDS, WIDTH), nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.RMSNorm(WIDTH), linear(WIDTH, WORDS)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the scores of all words."""
        x = self.words(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        result: Tensor = self.head(self.norm(x))
        return result


def main() -> None:
    """Make two steps on a mesh of data by tensor ranks."""
    ranks = int(os.environ["WORLD_SIZE"])
    mesh = init_device_mesh("cuda", (ranks // TENSOR, TENSOR), mesh_dim_names=("data", "tensor"))
    with torch.device("meta"):
        model = Llama()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    columns = dict.fromkeys(("attention.q", "attention.k", "attention.v", "gate", "up"), ColwiseParallel())
    rows = dict.fromkeys(("attention.o", "down"), RowwiseParallel())
    for block in model.blocks:
        parallelize_module(block, mesh["tensor"], columns | rows)
        fully_shard(block, mesh=mesh["data"], mp_policy=policy)
    head = ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)
    parallelize_module(model, mesh["tensor"], {"words": RowwiseParallel(input_layouts=Replicate()), "head": head})
    fully_shard(model, mesh=mesh["data"], mp_policy=policy)
    model.to_empty(device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(STEPS):
        tokens = torch.randint(WORDS, (BATCH, CONTEXT), device="cuda")
        with loss_parallel():
            loss = F.cross_entropy(model(tokens).flatten(0, 1).float(), tokens.flatten())
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    sys.stdout.write(f"loss {loss.item():.3f}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
