"""Find the models of published training runs: shipped profiles by published name, and the files of ``data/models``."""

from functools import cache
from pathlib import Path

from collectives.errors import InputError
from collectives.quoting import suggest
from collectives.records.model_profile import (
    Layer,
    ModelProfile,
    find_model_profile,
    read_model_profile,
    shipped_model_profiles,
)

OTHERS = Path(__file__).parent / "data" / "models"
EVEN_LAYERS = 100  # layers of a model if only its size is known
PROFILES = {  # shipped profiles by their names in published series
    "ResNet-18": "resnet18", "ResNet-34": "resnet34", "ResNet-50": "resnet50", "ResNet-101": "resnet101",
    "ResNet-152": "resnet152", "ResNeXt-101": "resnext101_32x8d", "VGG16": "vgg16", "VGG-16": "vgg16",
    "AlexNet": "alexnet", "InceptionV3": "inception_v3", "DenseNet-121": "densenet121", "GPT-2": "gpt2",
    "BERT-base": "bert-base-384", "BERT-large": "bert-large-384",
}  # fmt: skip


def find_model(name: str) -> ModelProfile:
    """Return a model of published series by its published name, or a shipped profile by its name.

    Raise InputError if the model is unknown.

    >>> find_model("ResNet-50").parameters, find_model("BERT-large-384").sample
    (25557032, '384 tokens')
    """
    others, known = _others(), shipped_model_profiles()
    if name in others:
        return others[name]
    shipped = PROFILES.get(name, name.lower())
    if shipped not in known:
        raise InputError(f"unknown model {name!r}; {suggest(name, [*PROFILES, *others, *known])}")
    return _shipped(shipped)


def models() -> dict[str, ModelProfile]:
    """Return the models of published series by their published names."""
    return {name: find_model(name) for name in [*PROFILES, *_others()]}


@cache
def _shipped(name: str) -> ModelProfile:
    return find_model_profile(name)


@cache
def _others() -> dict[str, ModelProfile]:
    return {profile.model: profile for profile in map(read_model_profile, sorted(OTHERS.glob("*.json")))}


def even_model(name: str, parameters: int, flops: float = EVEN_LAYERS, written: float = 0.0) -> ModelProfile:
    """Return a model with ``parameters`` parameters in equal layers.

    ``flops`` and the number of ``written`` elements are for the forward pass of one sample.

    >>> even_model("mine", 1_700_000_000).parameters
    1700000000
    """
    each = parameters // EVEN_LAYERS
    sizes = [each] * (EVEN_LAYERS - 1) + [parameters - each * (EVEN_LAYERS - 1)]
    work, nbytes = round(flops / EVEN_LAYERS), round(4 * written / EVEN_LAYERS)  # of float32 elements
    layers = (
        Layer(
            name=str(number),
            kind="Even",
            block=str(number),
            tensors=(size,) if size else (),
            forward_flops=work,
            backward_flops=round(2 * flops / EVEN_LAYERS),
            read_bytes=nbytes,
            written_bytes=nbytes,
            backward_bytes=3 * nbytes,
            saved_bytes=nbytes,
            output_bytes=nbytes,
        )
        for number, size in enumerate(sizes)
    )
    return ModelProfile(name, "1 sample", 4, "its size alone", tuple(layers))
