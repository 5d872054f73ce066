"""Find a model by name: a torchvision model, a transformer given by its dimensions, or a user's function."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from collectives.errors import InputError
from collectives.quoting import quote
from collectives.records.model_profile import TransformerShape, is_transformer, parse_transformer
from collectives.training.workload import is_file_reference
from realcomm.launching.torch_process import import_compiler
from realcomm.training.model_files import check_model_file, check_model_name
from realcomm.training.models import build_from_file

IMAGE = (3, 224, 224)
SIZES = {"inception_v3": (3, 299, 299)}


class ModelSource(NamedTuple):
    """A model that can be built on any device, and the shape of its input samples."""

    name: str
    build: Callable[[], nn.Module]
    sample: tuple[int, ...]  # without the batch dimension
    vocabulary: int | None  # samples are whole numbers below it; None: float32
    shape: TransformerShape | None
    file: Path | None = None  # the user's file

    @property
    def described(self) -> str:
        """One sample's size as text, such as "3x224x224" or "512 tokens"."""
        return f"{self.sample[0]} tokens" if self.vocabulary else "x".join(map(str, self.sample))

    def batch(self, batch_size: int, device: torch.device | str) -> Tensor:
        size = (batch_size, *self.sample)
        if self.vocabulary is not None:
            return torch.randint(self.vocabulary, size, device=device)
        return torch.randn(size, device=device)


def find_model(text: str, sample: tuple[int, ...] | None = None) -> ModelSource:
    """Return the model called ``text``. ``sample`` is the shape of one input without the batch dimension.

    Default: 3 x 224 x 224, or 3 x 299 x 299 for inception_v3. A user's file is executed when the model is built. Raise
    InputError for an unknown name. Also raise InputError for a transformer with a ``sample``, because its name states
    the sequence length.
    """
    if is_transformer(text):
        if sample is not None:
            raise InputError(f"model {quote(text)} already states its sequence length; omit the shape")
        kind, shape = parse_transformer(text)
        return ModelSource(text, lambda: Transformer(kind, shape), (shape.context,), shape.vocabulary, shape)
    if is_file_reference(text):
        path, _, _ = text.rpartition(":")
        return ModelSource(text, lambda: _from_file(text), sample or IMAGE, None, None, Path(path))
    check_model_name(text)
    import_compiler()
    import torchvision  # noqa: F401 - slow, and not to be imported while a model is built on the meta device

    return ModelSource(text, lambda: _of_torchvision(text), sample or SIZES.get(text, IMAGE), None, None)


def _of_torchvision(name: str) -> nn.Module:
    from torchvision.models import get_model

    more = {"init_weights": False, "aux_logits": False} if name in ("inception_v3", "googlenet") else {}
    model: nn.Module = get_model(name, weights=None, **more)
    return model


def _from_file(text: str) -> nn.Module:
    check_model_file(text)
    return build_from_file(text)


def loss_of(output: Any) -> Tensor:
    """Return a model's loss: the cross entropy of the output's first tensor, or its mean if it has no scores.

    A tensor has scores if it has two or three dimensions and several entries in the last one. Raise InputError if the
    output has no tensor or if the first tensor is not floating-point.
    """
    scores = _first_tensor(output)
    if scores is None or not scores.is_floating_point():
        raise InputError(f"the model returns {type(output).__name__}; return a floating-point tensor with gradients")
    if scores.dim() in (2, 3) and scores.shape[-1] > 1:
        rows = scores.reshape(-1, scores.shape[-1])
        return functional.cross_entropy(rows, torch.zeros(len(rows), dtype=torch.long, device=scores.device))
    return scores.float().mean()


def _first_tensor(output: Any) -> Tensor | None:
    if isinstance(output, Tensor):
        return output
    values = output.values() if isinstance(output, dict) else output if isinstance(output, list | tuple) else ()
    return next((tensor for each in values if (tensor := _first_tensor(each)) is not None), None)


class Attention(nn.Module):
    """Self-attention. If ``rotary`` is true, queries and keys get rotary position embeddings."""

    def __init__(self, shape: TransformerShape, *, causal: bool, rotary: bool, bias: bool) -> None:
        super().__init__()
        self.head, self.causal, self.rotary = shape.width // shape.heads, causal, rotary
        inner = self.head * (shape.heads + 2 * shape.kv_heads)
        self.qkv = nn.Linear(shape.width, inner, bias=bias)
        self.out = nn.Linear(shape.width, shape.width, bias=bias)
        self.widths = [self.head * shape.heads, self.head * shape.kv_heads, self.head * shape.kv_heads]

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        parts = self.qkv(x).split(self.widths, dim=-1)
        q, k, v = (part.view(batch, tokens, -1, self.head).transpose(1, 2) for part in parts)
        if self.rotary:
            q, k = _rotate(q), _rotate(k)
        if k.shape[1] < q.shape[1]:
            k, v = (each.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for each in (k, v))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(attended.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


def _rotate(x: Tensor) -> Tensor:
    """Apply rotary position embeddings (Su et al., https://arxiv.org/abs/2104.09864)."""
    tokens, half = x.shape[-2], x.shape[-1] // 2
    speeds = 10000.0 ** (-torch.arange(half, device=x.device) / half)
    angles = torch.arange(tokens, device=x.device)[:, None] * speeds
    first, second, cos, sin = x[..., :half], x[..., half : 2 * half], angles.cos(), angles.sin()
    return torch.cat((first * cos - second * sin, first * sin + second * cos, x[..., 2 * half :]), dim=-1)


class Mlp(nn.Module):
    """Two linear layers with a GELU between them. If ``gated`` is true, three linear layers with a SiLU gate."""

    def __init__(self, shape: TransformerShape, *, gated: bool) -> None:
        super().__init__()
        self.up = nn.Linear(shape.width, shape.hidden, bias=not gated)
        self.gate = nn.Linear(shape.width, shape.hidden, bias=False) if gated else None
        self.activation = nn.SiLU() if gated else nn.GELU()
        self.down = nn.Linear(shape.hidden, shape.width, bias=not gated)

    def forward(self, x: Tensor) -> Tensor:
        if self.gate is None:
            return self.down(self.activation(self.up(x)))  # type: ignore[no-any-return]
        return self.down(self.activation(self.gate(x)) * self.up(x))  # type: ignore[no-any-return]


class TransformerBlock(nn.Module):
    """Attention and MLP with residual connections. If ``norm_first`` is true, norms precede them (pre-norm)."""

    def __init__(self, kind: str, shape: TransformerShape) -> None:
        super().__init__()
        norm: Any = nn.RMSNorm if kind == "llama" else nn.LayerNorm
        self.norm_first = kind != "bert"
        self.norm1, self.norm2 = norm(shape.width), norm(shape.width)
        self.attention = Attention(shape, causal=kind != "bert", rotary=kind == "llama", bias=kind != "llama")
        self.mlp = Mlp(shape, gated=kind == "llama")

    def forward(self, x: Tensor) -> Tensor:
        if self.norm_first:
            x = x + self.attention(self.norm1(x))
            return x + self.mlp(self.norm2(x))  # type: ignore[no-any-return]
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.mlp(x))  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """A transformer that returns logits over the vocabulary at each token."""

    def __init__(self, kind: str, shape: TransformerShape) -> None:
        super().__init__()
        self.words = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = None if kind == "llama" else nn.Embedding(shape.context, shape.width)
        self.types = nn.Embedding(2, shape.width) if kind == "bert" else None
        self.first_norm = nn.LayerNorm(shape.width) if kind == "bert" else None
        self.blocks = nn.ModuleList(TransformerBlock(kind, shape) for _ in range(shape.layers))
        norm: Any = nn.RMSNorm if kind == "llama" else nn.LayerNorm
        transform = nn.Linear(shape.width, shape.width), nn.GELU()  # before the scores of masked words
        self.transform = nn.Sequential(*transform) if kind == "bert" else None
        self.last_norm = norm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=kind == "bert")
        if kind != "llama":
            self.head.weight = self.words.weight

    def forward(self, words: Tensor) -> Tensor:
        """Return logits of shape (batch, tokens, vocabulary) for token ids of shape (batch, tokens)."""
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
