"""The models of published series, as profiles.

Most are shipped (``collectives/model_profiles``). Where a published series trains another one, its layers are
arithmetic on the dimensions that its paper gives.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from collectives.errors import InputError
from collectives.quoting import suggest
from collectives.records.model_profile import Layer, ModelProfile, find_model_profile, shipped_model_profiles

ITEM_BYTES = 4  # of an element, as in the shipped profiles
EVEN_LAYERS = 100  # of a model of which only the size is known


def find_model(name: str) -> ModelProfile:
    """Return a model by its name as published series have it, or that of a profile. Raise InputError.

    >>> find_model("ResNet-50").parameters, find_model("BERT-large-384").sample
    (25557032, '384 tokens')
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


def even_model(name: str, parameters: int, flops: float = EVEN_LAYERS, written: float = 0.0) -> ModelProfile:
    """Return a model of which only sizes are known: equal layers, of which each has its share of everything.

    ``flops`` and the elements ``written`` are of a sample's forward pass.

    >>> even_model("mine", 1_700_000_000).parameters
    1700000000
    """
    each = parameters // EVEN_LAYERS
    sizes = [each] * (EVEN_LAYERS - 1) + [parameters - each * (EVEN_LAYERS - 1)]
    layers = [_layer("Even", [size] if size else [], flops / EVEN_LAYERS, written / EVEN_LAYERS) for size in sizes]
    return _model(name, layers, "1 sample", "its size alone")


@cache
def _shipped(name: str) -> ModelProfile:
    return find_model_profile(name)


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


def _layer(kind: str, tensors: Sequence[int], flops: float, written: float) -> Layer:
    """Return a layer by the FLOPs and the written elements of its forward pass of a sample.

    It reads as much as it writes and keeps what it was given; backward takes twice the FLOPs and moves three times the
    bytes: it reads what was kept and the gradient of what was written, and writes the gradient of what was given.
    """
    nbytes = round(ITEM_BYTES * written)
    return Layer(
        name="",
        kind=kind,
        block="",
        tensors=(*tensors,),
        forward_flops=round(flops),
        backward_flops=round(2 * flops),
        read_bytes=nbytes,
        written_bytes=nbytes,
        backward_bytes=3 * nbytes,
        saved_bytes=nbytes,
        output_bytes=nbytes,
    )


def _model(name: str, layers: Iterable[Layer], sample: str, source: str) -> ModelProfile:
    """Return a model of these layers, each of which is named by its number."""
    named = [layer._replace(name=str(number), block=str(number)) for number, layer in enumerate(layers)]
    return ModelProfile(name, sample, ITEM_BYTES, source, (*named,))


def _linear(inputs: int, outputs: int, *, times: float = 1.0) -> Layer:
    """Return a linear layer that is used on ``times`` vectors of a sample."""
    return _layer("Linear", [inputs * outputs, outputs], 2.0 * inputs * outputs * times, outputs * times)


def _convolution(inputs: int, outputs: int, kernel: int, pixels: int) -> Layer:
    weights = inputs * outputs * kernel**2
    return _layer("Conv2d", [weights, outputs], 2.0 * weights * pixels, outputs * pixels)


def _block(width: int, inner: int, length: float, attended: float, *, relative: bool = False) -> list[Layer]:
    """Return a transformer block's attention and feed-forward layers for ``length`` vectors, each of which attends."""
    scores = _layer("Attention", [], 4.0 * width * attended * length, attended * length * width / 64)
    projections = [_linear(width, width, times=length) for _ in range(5 if relative else 4)]
    norms = _layer("LayerNorm", [width] * 4, 0.0, 4 * width * length)
    return [*projections, scores, norms, _linear(width, inner, times=length), _linear(inner, width, times=length)]


def _transformer(name: str, blocks: int, width: int, inner: int, words: int) -> ModelProfile:
    """Return a translator (Vaswani et al. 2017, arXiv 1706.03762) with one table of words, for a token of 30."""
    embeddings = _layer("Embedding", [words * width], 0.0, 2.0 * width)
    encoder = [layer for _ in range(blocks) for layer in _block(width, inner, 1, 30)]
    cross = [_linear(width, width) for _ in range(4)]
    decoder = [layer for _ in range(blocks) for layer in (*_block(width, inner, 1, 30), *cross)]
    scores = _layer("Linear", [], 2.0 * words * width, words)  # of words: its weights are the table
    return _model(name, [embeddings, *encoder, *decoder, scores], "1 token", "arXiv 1706.03762")


def _transformer_xl(name: str, blocks: int, width: int, inner: int, clusters: list[int], length: int) -> ModelProfile:
    """Return Transformer-XL (Dai et al. 2019, arXiv 1901.02860) with adaptive embeddings, tied; for a token.

    Each cluster of rarer words has a quarter of the width of the one before.
    """
    widths = [width // 4**index for index in range(len(clusters))]
    tables = [words * own for words, own in zip(clusters, widths, strict=True)]
    projections = [own * width for own in widths] if len(clusters) > 1 else []
    embeddings = _layer("Embedding", [*tables, *projections], 0.0, width)
    body = [layer for _ in range(blocks) for layer in _block(width, inner, 1, 2 * length, relative=True)]
    share = 1 if len(clusters) > 1 else 0.15
    head = _layer("Linear", [], 2.0 * clusters[0] * width * share, 0.15 * clusters[0])
    return _model(name, [embeddings, *body, head], "1 token", "arXiv 1901.02860")


def _gnmt() -> ModelProfile:
    """Return GNMT v2 (Wu et al. 2016, arXiv 1609.08144) of width 1024 with four layers, for a token."""
    width, words = 1024, 32_320
    cells = [(1, 2), (2, 1), (1, 1), (1, 1), (1, 1), (2, 1), (2, 1), (2, 1)]  # widths in; directions
    lstms = [
        _layer("LSTM", [4 * inputs * width**2, 4 * width**2, 4 * width, 4 * width] * directions,
               8.0 * directions * (inputs + 1) * width**2, 16.0 * width)
        for inputs, directions in cells
    ]  # fmt: skip
    table = _layer("Embedding", [words * width], 0.0, width)
    attention = [_linear(width, width) for _ in range(2)]
    return _model("GNMT", [table, *lstms, *attention, _linear(width, words)], "1 token", "arXiv 1609.08144")


def _ssd300() -> ModelProfile:
    """Return SSD300 on a ResNet-50 up to its fourth stage, as NVIDIA's DeepLearningExamples have it."""
    more = [(1024, 256, 1, 1444), (256, 512, 3, 361), (512, 256, 1, 361), (256, 512, 3, 100), (512, 128, 1, 100),
            (128, 256, 3, 25), (256, 128, 1, 25), (128, 256, 3, 9), (256, 128, 1, 9), (128, 256, 3, 1)]  # fmt: skip
    heads = [(1024, 4, 1444), (512, 6, 361), (512, 6, 100), (256, 6, 25), (256, 4, 9), (256, 4, 1)]
    extra = [_convolution(*shape) for shape in more]
    found = [_convolution(inputs, 85 * boxes, 3, area) for inputs, boxes, area in heads]
    return _model("SSD300", [*_first_stages(), *extra, *found], "3x300x300", "NVIDIA's DeepLearningExamples")


def _first_stages() -> Iterator[Layer]:
    """Yield ResNet-50 on 300 x 300 pixels up to its fourth stage, which here keeps the resolution of the third."""
    for layer in find_model_profile("resnet50").layers:
        if layer.block.startswith("layer4") or layer.name.startswith("fc"):
            return
        larger = (300 / 224) ** 2 * (4 if layer.block.startswith("layer3") else 1)
        yield Layer(*layer[:4], *(round(number * larger) for number in layer[4:]))
