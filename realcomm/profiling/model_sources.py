"""The model that a text names, and what it is fed: torchvision's, a transformer by its dimensions, a user's factory."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from collectives.errors import InputError
from collectives.quoting import close_names, quote, suggest
from collectives.records.model_profile import TransformerShape
from collectives.training.workload import is_file_reference
from collectives.transformer_shapes import EXAMPLE, TRANSFORMERS, is_transformer, parse_transformer
from realcomm.launching.compiler_folder import import_compiler
from realcomm.profiling.transformers import Transformer
from realcomm.training.model_files import check_model_file
from realcomm.training.models import build_from_file

IMAGE = (3, 224, 224)
SIZES = {"inception_v3": (3, 299, 299)}
ACCEPTED = f"a model of torchvision like resnet50, one like gpt2, FILE.py:NAME, or {EXAMPLE}"


class ModelSource(NamedTuple):
    """A model that can be built on any device, and the shape of one sample."""

    name: str
    build: Callable[[], nn.Module]
    sample: tuple[int, ...]  # without the batch
    vocabulary: int | None  # samples are whole numbers below it; None: float32
    shape: TransformerShape | None
    file: Path | None = None  # of a user's

    @property
    def described(self) -> str:
        """What one sample is, in words."""
        return f"{self.sample[0]} tokens" if self.vocabulary else "x".join(map(str, self.sample))

    def batch(self, batch_size: int, device: torch.device | str) -> Tensor:
        """Return a batch to feed it."""
        size = (batch_size, *self.sample)
        if self.vocabulary is not None:
            return torch.randint(self.vocabulary, size, device=device)
        return torch.randn(size, device=device)


def find_model(text: str, sample: tuple[int, ...] | None = None) -> ModelSource:
    """Return the model that ``text`` names; ``sample`` is the shape of one, 3 x 224 x 224 unless said.

    A user's file is executed when the model is built, as its name was given. Raises InputError.
    """
    if is_transformer(text):
        if sample is not None:
            raise InputError(f"model {quote(text)} says its context itself; leave the shape out")
        kind, shape = parse_transformer(text)
        return ModelSource(text, lambda: Transformer(kind, shape), (shape.context,), shape.vocabulary, shape)
    if is_file_reference(text):
        path, _, _ = text.rpartition(":")
        return ModelSource(text, lambda: _from_file(text), sample or IMAGE, None, None, Path(path))
    if ":" in text or "/" in text or text.endswith(".py"):
        raise InputError(f"model {quote(text)} is not known; give {ACCEPTED}")
    import_compiler()
    from torchvision.models import list_models  # slow to import

    known = list_models(module=__import__("torchvision.models", fromlist=["models"]))
    if text not in known:
        names = [*TRANSFORMERS, *known]
        near = f"{suggest(text, names)}; or " if close_names(text, names) else ""
        raise InputError(f"model {quote(text)} is not known; {near}give {ACCEPTED}")
    return ModelSource(text, lambda: _of_torchvision(text), sample or SIZES.get(text, IMAGE), None, None)


def _of_torchvision(name: str) -> nn.Module:
    from torchvision.models import get_model

    more = {"init_weights": False, "aux_logits": False} if name in ("inception_v3", "googlenet") else {}
    model: nn.Module = get_model(name, weights=None, **more)
    return model


def _from_file(text: str) -> nn.Module:
    """Return what the function in a user's file returns, which is executed. Raise InputError."""
    check_model_file(text)
    return build_from_file(text)


def loss_of(found: Any) -> Tensor:
    """Return a loss of what a model returns: cross entropy of scores, the mean of anything else."""
    scores = _first_tensor(found)
    if scores is None or not scores.is_floating_point():
        raise InputError(f"it returns {type(found).__name__}; return a tensor of numbers that have gradients")
    if scores.dim() in (2, 3) and scores.shape[-1] > 1:
        rows = scores.reshape(-1, scores.shape[-1])
        return functional.cross_entropy(rows, torch.zeros(len(rows), dtype=torch.long, device=scores.device))
    return scores.float().mean()


def _first_tensor(found: Any) -> Tensor | None:
    if isinstance(found, Tensor):
        return found
    values = found.values() if isinstance(found, dict) else found if isinstance(found, list | tuple) else ()
    return next((tensor for each in values if (tensor := _first_tensor(each)) is not None), None)
