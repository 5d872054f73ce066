"""Transformers as modules of torch, built by their dimensions (``collectives/transformer_shapes.py``)."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from collectives.records.model_profile import TransformerShape


class Attention(nn.Module):
    """Self-attention; ``rotary`` turns queries and keys by their positions."""

    def __init__(self, shape: TransformerShape, *, causal: bool, rotary: bool, bias: bool) -> None:
        super().__init__()
        self.head, self.causal, self.rotary = shape.width // shape.heads, causal, rotary
        inner = self.head * (shape.heads + 2 * shape.kv_heads)
        self.qkv = nn.Linear(shape.width, inner, bias=bias)
        self.out = nn.Linear(shape.width, shape.width, bias=bias)
        self.widths = [self.head * shape.heads, self.head * shape.kv_heads, self.head * shape.kv_heads]

    def forward(self, x: Tensor) -> Tensor:
        """Return the attended values, of the shape of ``x``: (batch, tokens, width)."""
        batch, tokens, _ = x.shape
        parts = self.qkv(x).split(self.widths, dim=-1)
        q, k, v = (part.view(batch, tokens, -1, self.head).transpose(1, 2) for part in parts)
        if self.rotary:
            q, k = _rotate(q), _rotate(k)
        if k.shape[1] < q.shape[1]:
            k, v = (each.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for each in (k, v))
        found = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(found.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


def _rotate(x: Tensor) -> Tensor:
    """Return heads turned by their positions (Su et al., https://arxiv.org/abs/2104.09864)."""
    tokens, half = x.shape[-2], x.shape[-1] // 2
    speeds = 10000.0 ** (-torch.arange(half, device=x.device) / half)
    angles = torch.arange(tokens, device=x.device)[:, None] * speeds
    first, second, cos, sin = x[..., :half], x[..., half : 2 * half], angles.cos(), angles.sin()
    return torch.cat((first * cos - second * sin, first * sin + second * cos, x[..., 2 * half :]), dim=-1)


class Mlp(nn.Module):
    """Two matrices with GELU between; gated, three with SiLU."""

    def __init__(self, shape: TransformerShape, *, gated: bool) -> None:
        super().__init__()
        self.up = nn.Linear(shape.width, shape.hidden, bias=not gated)
        self.gate = nn.Linear(shape.width, shape.hidden, bias=False) if gated else None
        self.activation = nn.SiLU() if gated else nn.GELU()
        self.down = nn.Linear(shape.hidden, shape.width, bias=not gated)

    def forward(self, x: Tensor) -> Tensor:
        """Return what the matrices make of each token."""
        if self.gate is None:
            return self.down(self.activation(self.up(x)))  # type: ignore[no-any-return]
        return self.down(self.activation(self.gate(x)) * self.up(x))  # type: ignore[no-any-return]


class TransformerBlock(nn.Module):
    """Attention and MLP, each added to what it is given; ``norm_first`` says where the norms are."""

    def __init__(self, kind: str, shape: TransformerShape) -> None:
        super().__init__()
        norm: Any = nn.RMSNorm if kind == "llama" else nn.LayerNorm
        self.norm_first = kind != "bert"
        self.norm1, self.norm2 = norm(shape.width), norm(shape.width)
        self.attention = Attention(shape, causal=kind != "bert", rotary=kind == "llama", bias=kind != "llama")
        self.mlp = Mlp(shape, gated=kind == "llama")

    def forward(self, x: Tensor) -> Tensor:
        """Return (batch, tokens, width)."""
        if self.norm_first:
            x = x + self.attention(self.norm1(x))
            return x + self.mlp(self.norm2(x))  # type: ignore[no-any-return]
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.mlp(x))  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """A transformer that gives a score to each word of the vocabulary for each token."""

    def __init__(self, kind: str, shape: TransformerShape) -> None:
        super().__init__()
        self.words = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = None if kind == "llama" else nn.Embedding(shape.context, shape.width)
        self.types = nn.Embedding(2, shape.width) if kind == "bert" else None
        self.first_norm = nn.LayerNorm(shape.width) if kind == "bert" else None
        self.blocks = nn.ModuleList(TransformerBlock(kind, shape) for _ in range(shape.layers))
        norm: Any = nn.RMSNorm if kind == "llama" else nn.LayerNorm
        self.transform = _masked_words(shape) if kind == "bert" else None
        self.last_norm = norm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=kind == "bert")
        if kind != "llama":
            self.head.weight = self.words.weight

    def forward(self, words: Tensor) -> Tensor:
        """Return (batch, tokens, vocabulary) for whole numbers (batch, tokens)."""
        x = self.words(words)
        if self.positions is not None:
            x = x + self.positions(torch.arange(words.shape[1], device=words.device))
        if self.types is not None:
            x = x + self.types(torch.zeros_like(words))
        x = x if self.first_norm is None else self.first_norm(x)
        for block in self.blocks:
            x = block(x)
        if self.transform is not None:
            x = self.transform(x)
        return self.head(self.last_norm(x))  # type: ignore[no-any-return]


def _masked_words(shape: TransformerShape) -> nn.Module:
    return nn.Sequential(nn.Linear(shape.width, shape.width), nn.GELU())
