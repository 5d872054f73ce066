"""``ModelProfile``: layer by layer what a model computes and how many gradients it sends.

Most are the project's profiles of models (``collectives/model_profiles``). Where a published series trains another one,
its layers are arithmetic on the dimensions that its paper gives.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import NamedTuple

from collectives.buckets import Gradient
from collectives.errors import InputError
from collectives.records.model_profile import ModelProfile as LayerProfile
from collectives.records.model_profile import find_model_profile, shipped_model_profiles
from collectives.suggestions import suggest

FLOPS_OF_AN_ACTIVATION = 100.0  # what reading and writing one takes, in FLOPs that a GPU does meanwhile; of time shares


class Layer(NamedTuple):
    """A layer: its parameters, and of a forward pass of one sample the FLOPs and the elements that it writes."""

    parameters: int
    flops: float
    activations: float


@dataclass(frozen=True)
class ModelProfile:
    """A model's layers in the order of forward. A sample is an image or a sequence; of ``token`` models, a token."""

    name: str
    layers: tuple[Layer, ...]
    sample: str = "image"

    @property
    def parameters(self) -> int:
        """Number of parameters, each with a gradient."""
        return sum(layer.parameters for layer in self.layers)

    @property
    def flops(self) -> float:
        """FLOPs of a sample's forward pass."""
        return sum(layer.flops for layer in self.layers)

    @property
    def activations(self) -> float:
        """Elements that a sample's forward pass writes."""
        return sum(layer.activations for layer in self.layers)

    def gradients(self, element_bytes: int) -> list[Gradient]:
        """Return the layers' gradients in the order of backward, each with the share of backward that it waits for.

        >>> model = ModelProfile("two", (Layer(4, 100.0, 0.0), Layer(2, 300.0, 0.0)))
        >>> model.gradients(4)
        [Gradient(nbytes=8, ready=0.75), Gradient(nbytes=16, ready=1.0)]
        """
        backward = self.layers[::-1]
        work = [layer.flops + FLOPS_OF_AN_ACTIVATION * layer.activations for layer in backward]
        whole = sum(work)
        done = [part / whole for part in accumulate(work)]
        done[-1] = 1.0
        return [Gradient(layer.parameters * element_bytes, share) for layer, share in zip(backward, done, strict=True)]


def of_profile(profile: LayerProfile) -> ModelProfile:
    """Return the layers that a profile has."""
    layers = tuple(
        Layer(layer.parameters, float(layer.forward_flops), layer.written_bytes / profile.item_bytes)
        for layer in profile.layers
    )
    return ModelProfile(profile.model, layers, "image" if "x" in profile.sample else "sequence")


def find_model(name: str) -> ModelProfile:
    """Return a model by its name as published series have it, or that of a profile. Raise InputError.

    >>> find_model("ResNet-50").parameters, find_model("BERT-large-384").sample
    (25557032, 'sequence')
    """
    others = _others()
    if name in others:
        return others[name]
    known = shipped_model_profiles()
    shipped = PROFILES.get(name, name.lower())
    if shipped not in known:
        raise InputError(f"model = {name!r} is not known; {suggest(name, [*PROFILES, *others, *known])}")
    return _shipped(shipped)


def models() -> dict[str, ModelProfile]:
    """Return the models that published series name, by those names."""
    return {name: find_model(name) for name in [*PROFILES, *_others()]}


@cache
def _shipped(name: str) -> ModelProfile:
    return of_profile(find_model_profile(name))


@cache
def _others() -> dict[str, ModelProfile]:
    """Return the models that are arithmetic, by name."""
    return {
        "SSD300": _ssd300(),
        "GNMT": _gnmt(),
        "Transformer-big": _transformer("Transformer-big", 6, 1024, 4096, 33_708),
        "TXL-base": _transformer_xl("TXL-base", 16, 512, 2048, [267_735], 192),
        "TXL-large": _transformer_xl("TXL-large", 18, 1024, 4096, [20_000, 20_000, 160_000, 67_735], 128),
    }


PROFILES = {
    "ResNet-18": "resnet18", "ResNet-34": "resnet34", "ResNet-50": "resnet50", "ResNet-101": "resnet101",
    "ResNet-152": "resnet152", "ResNeXt-101": "resnext101_32x8d", "VGG16": "vgg16", "VGG-16": "vgg16",
    "AlexNet": "alexnet", "InceptionV3": "inception_v3", "DenseNet-121": "densenet121", "GPT-2": "gpt2",
    "BERT-base": "bert-base-384", "BERT-large": "bert-large-384",
}  # fmt: skip


def _linear(inputs: int, outputs: int, *, times: float = 1.0) -> Layer:
    """Return a linear layer that is used on ``times`` vectors of a sample."""
    return Layer(inputs * outputs + outputs, 2.0 * inputs * outputs * times, outputs * times)


def _convolution(inputs: int, outputs: int, kernel: int, pixels: int) -> Layer:
    weights = inputs * outputs * kernel**2
    return Layer(weights + outputs, 2.0 * weights * pixels, outputs * pixels)


def _block(width: int, inner: int, length: float, attended: float, *, relative: bool = False) -> list[Layer]:
    """Return a transformer block's attention and feed-forward layers for ``length`` vectors, each of which attends."""
    scores = Layer(0, 4.0 * width * attended * length, attended * length * width / 64)
    projections = [_linear(width, width, times=length) for _ in range(5 if relative else 4)]
    norms = Layer(4 * width, 0.0, 4 * width * length)
    return [*projections, scores, norms, _linear(width, inner, times=length), _linear(inner, width, times=length)]


def _transformer(name: str, blocks: int, width: int, inner: int, words: int) -> ModelProfile:
    """Return a translator (Vaswani et al. 2017, arXiv 1706.03762) with one table of words, for a token of 30."""
    embeddings = Layer(words * width, 0.0, 2.0 * width)
    encoder = [layer for _ in range(blocks) for layer in _block(width, inner, 1, 30)]
    cross = [_linear(width, width) for _ in range(4)]
    decoder = [layer for _ in range(blocks) for layer in (*_block(width, inner, 1, 30), *cross)]
    return ModelProfile(name, (embeddings, *encoder, *decoder, Layer(0, 2.0 * words * width, words)), "token")


def _transformer_xl(name: str, blocks: int, width: int, inner: int, clusters: list[int], length: int) -> ModelProfile:
    """Return Transformer-XL (Dai et al. 2019, arXiv 1901.02860) with adaptive embeddings, tied; for a token.

    Each cluster of rarer words has a quarter of the width of the one before.
    """
    widths = [width // 4**index for index in range(len(clusters))]
    tables = sum(words * own for words, own in zip(clusters, widths, strict=True))
    projections = sum(own * width for own in widths) if len(clusters) > 1 else 0
    body = [layer for _ in range(blocks) for layer in _block(width, inner, 1, 2 * length, relative=True)]
    head = Layer(0, 2.0 * clusters[0] * width * (1 if len(clusters) > 1 else 0.15), 0.15 * clusters[0])
    return ModelProfile(name, (Layer(tables + projections, 0.0, width), *body, head), "token")


def _gnmt() -> ModelProfile:
    """Return GNMT v2 (Wu et al. 2016, arXiv 1609.08144) of width 1024 with four layers, for a token."""
    width, words = 1024, 32_320
    cells = [(1, 2), (2, 1), (1, 1), (1, 1), (1, 1), (2, 1), (2, 1), (2, 1)]  # widths in; directions
    lstms = [
        Layer(directions * 4 * (width * (inputs + 1) * width + 2 * width), 8.0 * directions * (inputs + 1) * width**2,
              16.0 * width)
        for inputs, directions in cells
    ]  # fmt: skip
    tables = [Layer(words * width, 0.0, width)]
    attention = [_linear(width, width) for _ in range(2)]
    return ModelProfile("GNMT", (*tables, *lstms, *attention, _linear(width, words)), "token")


def _ssd300() -> ModelProfile:
    """Return SSD300 on a ResNet-50 up to its fourth stage, as NVIDIA's DeepLearningExamples have it."""
    backbone = [Layer(part.parameters, part.flops * (300 / 224) ** 2, part.activations * (300 / 224) ** 2)
                for part in _first_stages()]  # fmt: skip
    more = [(1024, 256, 1, 1444), (256, 512, 3, 361), (512, 256, 1, 361), (256, 512, 3, 100), (512, 128, 1, 100),
            (128, 256, 3, 25), (256, 128, 1, 25), (128, 256, 3, 9), (256, 128, 1, 9), (128, 256, 3, 1)]  # fmt: skip
    heads = [(1024, 4, 1444), (512, 6, 361), (512, 6, 100), (256, 6, 25), (256, 4, 9), (256, 4, 1)]
    extra = [_convolution(*shape) for shape in more]
    return ModelProfile("SSD300", (*backbone, *extra, *(_convolution(c, 85 * n, 3, area) for c, n, area in heads)))


def _first_stages() -> Iterator[Layer]:
    """Yield the layers of ResNet-50 up to its fourth stage, which here keeps the resolution of the third."""
    for layer in find_model_profile("resnet50").layers:
        if layer.block.startswith("layer4") or layer.name.startswith("fc"):
            return
        larger = 4 if layer.block.startswith("layer3") else 1
        yield Layer(layer.parameters, layer.forward_flops * larger, layer.written_bytes / 4 * larger)
