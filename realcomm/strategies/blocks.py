"""Split a model into consecutive blocks, from which pipeline stages are built."""

from pathlib import Path

import torch
from torch import nn

from collectives.errors import InputError
from collectives.quoting import quote
from collectives.training.workload import is_file_reference
from realcomm.launching.torch_process import import_compiler
from realcomm.profiling.model_sources import Transformer, find_model
from realcomm.training.model_files import ask_file
from realcomm.training.models import build_from_file


def block_names(model: str) -> list[str]:
    """Return the names of a model's consecutive blocks. A user's file is executed in a subprocess.

    Raise InputError as ``named_blocks`` does. Also raise InputError if the user's file fails or exceeds its limits.

    >>> block_names("llama:layers=1,width=8,heads=2,context=4,vocabulary=10")
    ['words', 'blocks.0', 'last_norm', 'head']
    """
    if not is_file_reference(model):
        with torch.device("meta"):
            return [*named_blocks(find_model(model).build(), model)]
    file, names = ask_file(model, f"{__name__}:blocks_in_worker", [model], (__name__,))
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise file.unreadable(TypeError("not a list of names"))
    return names


def blocks_in_worker(path: Path, name: str, model: str) -> list[str]:
    """Return the block names of a user's model. This runs in the subprocess that executes the user's file."""
    with torch.device("meta"):
        return [*named_blocks(build_from_file(f"{path}:{name}"), model)]


def named_blocks(model: nn.Module, name: str) -> dict[str, nn.Module]:
    """Return the consecutive blocks of a model. Their names are the same as in the model's profile.

    Raise InputError for a model whose forward does more than call blocks in order.

    >>> list(named_blocks(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), "mine"))
    ['0', '1']
    """
    if isinstance(model, nn.Sequential):
        return dict(model.named_children())
    if isinstance(model, Transformer):
        return _blocks_of_transformer(model, name)
    import_compiler()
    from torchvision.models.resnet import ResNet  # slow to import

    if isinstance(model, ResNet):
        stem = ("conv1", "bn1", "relu", "maxpool")
        blocks = {each: getattr(model, each) for each in stem}
        for layer in ("layer1", "layer2", "layer3", "layer4"):
            blocks |= {f"{layer}.{number}": block for number, block in enumerate(getattr(model, layer))}
        return {**blocks, "avgpool": nn.Sequential(model.avgpool, nn.Flatten()), "fc": model.fc}
    raise InputError(
        f"model {quote(name)} does not consist of consecutive blocks; use one of torchvision's ResNets, a "
        "Transformer such as llama:layers=4,width=512,heads=8, or FILE.py:NAME that returns a torch.nn.Sequential"
    )


def _blocks_of_transformer(model: Transformer, name: str) -> dict[str, nn.Module]:
    if model.head.weight is model.words.weight:
        raise InputError(
            f"model {quote(name)} shares weights between its token embedding and LM head, which are on different "
            "stages; use a model that begins with llama:, whose weights are separate"
        )
    layers = {f"blocks.{number}": block for number, block in enumerate(model.blocks)}
    return {"words": model.words, **layers, "last_norm": model.last_norm, "head": model.head}
