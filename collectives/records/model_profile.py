"""Define ``ModelProfile``: the FLOPs, memory traffic, memory and optional measured times of a model's layers.

FLOPs and bytes are per sample, so one profile serves every batch size. Parameters are also read once per batch.
Predictions read a profile without torch. ``ringlab profile`` writes profiles.

A transformer can also be described by text: ``gpt:layers=12,width=768,heads=12,context=1024,vocabulary=50257``. *gpt*
has layer norm before attention and MLP, learned positions, GELU, and a head that shares the embedding (Radford et al.,
Language Models are Unsupervised Multitask Learners). *bert* has layer norm after attention and MLP, token types, full
attention, and the masked-word head without pooler (Devlin et al., https://arxiv.org/abs/1810.04805). *llama* has RMS
norm, rotary positions, a gated MLP, and a separate head (Touvron et al., https://arxiv.org/abs/2302.13971).
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from math import prod
from pathlib import Path
from typing import ClassVar, NamedTuple

from collectives.checks import MOST_COUNTED, MOST_FLOPS, MOST_SECONDS, check_known, check_path
from collectives.errors import InputError
from collectives.input_files import FileBytes
from collectives.quoting import quote, suggest
from collectives.records.files import read_record, write_record
from collectives.training.gradients import Gradient, gradients_of

SHIPPED = Path(__file__).parent.parent / "model_profiles"
TOKEN_BYTES = 8  # embeddings of torch take int64
FLOPS_PER_BYTE = 50.0  # assumed FLOPs in the time of moving one byte, for shares of time


class Layer(NamedTuple):
    """A layer of a model, with costs per sample. A multiply-add counts as two FLOPs.

    ``tensors`` are the numbers of elements of the parameter tensors. A shared tensor counts once. ``block`` names the
    part of the model to which the layer belongs. The model can be cut after a block, because later layers need only the
    ``output_bytes`` of its last layer. ``backward_bytes`` is the memory traffic of backward. ``saved_bytes`` are stored
    from forward to backward, without parameters.
    """

    name: str
    kind: str
    block: str
    tensors: tuple[int, ...]
    forward_flops: int
    backward_flops: int
    read_bytes: int
    written_bytes: int
    backward_bytes: int
    saved_bytes: int
    output_bytes: int

    @property
    def parameters(self) -> int:
        return sum(self.tensors)


class Measured(NamedTuple):
    """The measured times of one batch in seconds, by layer. ``step`` is the time of a whole step without hooks."""

    device: str
    batch_size: int
    precision: str
    forward: tuple[float, ...]
    backward: tuple[float, ...]
    optimizer: float
    loading: float  # 0; files from before 0.1 may contain the time in which one process loads a batch
    step: float
    source: str
    threads: int = 0  # CPU threads; 0 for a GPU, and if unknown


class TransformerShape(NamedTuple):
    """The dimensions of a transformer, from which its FLOPs and memory are computed."""

    layers: int
    width: int
    heads: int
    context: int  # tokens per sample
    vocabulary: int
    kv_heads: int
    hidden: int  # width between the matrices of an MLP


class Block(NamedTuple):
    """A group of consecutive layers. A pipeline stage can end after it."""

    name: str
    parameters: int
    forward_flops: int
    backward_flops: int
    forward_bytes: int
    backward_bytes: int
    saved_bytes: int
    output_bytes: int


@dataclass(frozen=True, repr=False)
class ModelProfile:
    """The costs of each layer of a model. Raise InputError if there are no layers or a value is out of range.

    >>> profile = find_model_profile("resnet50")
    >>> profile.parameters, round(profile.forward_flops / 1e9, 2), len(profile.blocks)
    (25557032, 8.18, 23)
    """

    SCHEMA_VERSION: ClassVar[int] = 1

    model: str
    sample: str  # size of one sample: "3x224x224", "1024 tokens"
    item_bytes: int  # size of the elements in all byte counts: 4 for float32
    source: str
    layers: tuple[Layer, ...]
    shape: TransformerShape | None = None
    measured: tuple[Measured, ...] = ()

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise InputError(f"profile of {quote(self.model)}: {problem}")

    def _problems(self) -> Iterator[str]:
        if not self.layers:
            yield "it must have layers"
        if self.item_bytes not in (1, 2, 4, 8):
            yield f"item_bytes must be 1, 2, 4 or 8, not {self.item_bytes}"
        for layer in self.layers:
            for key, value in zip(layer._fields[4:], layer[4:], strict=True):
                most = MOST_FLOPS if key.endswith("flops") else MOST_COUNTED
                if not 0 <= value <= most:
                    yield f"{key} of {quote(layer.name)} must be from 0 to {most:.0e}, not {quote(value)}"
            if min(layer.tensors, default=1) < 1 or sum(layer.tensors) > MOST_COUNTED:
                yield f"tensors of {quote(layer.name)} must be from 1 to {MOST_COUNTED:.0e}, not {quote(layer.tensors)}"
        if self.parameters > MOST_COUNTED:
            yield f"it must have at most {MOST_COUNTED:.0e} parameters, not {self.parameters:.3g}"
        for block, number in Counter(block for block, _ in groupby(layer.block for layer in self.layers)).items():
            if number > 1:
                yield f"block {quote(block)} must have consecutive layers"
        for run in self.measured:
            where = f"measured on {quote(run.device)}"
            if not 1 <= run.batch_size <= MOST_COUNTED:
                yield f"{where}: batch_size must be a positive integer, not {quote(run.batch_size)}"
            if not len(run.forward) == len(run.backward) == len(self.layers):
                times = f"{len(run.forward)} forward and {len(run.backward)} backward times"
                yield f"{where}: {times} for {len(self.layers)} layers"
            if not all(
                0 <= t <= MOST_SECONDS for t in (*run.forward, *run.backward, run.optimizer, run.loading, run.step)
            ):
                yield f"{where}: times must be from 0 to {MOST_SECONDS:g} s"

    def __repr__(self) -> str:
        return f"<ModelProfile of {self.model}: {self.parameters:,} parameters in {len(self.layers)} layers>"

    @property
    def parameters(self) -> int:
        """The number of trained parameters of all layers."""
        return sum(layer.parameters for layer in self.layers)

    @property
    def tokens(self) -> int:
        """The number of tokens per sample, or 0 if samples are not text."""
        match = re.fullmatch(r"([0-9]{1,15}) tokens?", self.sample)
        return int(match[1]) if match else 0

    @property
    def input_bytes(self) -> int:
        """The size of a sample on a device in bytes: 8 per token of a text, or ``item_bytes`` per value of an image.

        It is 0 if ``sample`` is neither a number of tokens nor a shape.
        """
        if self.tokens:
            return TOKEN_BYTES * self.tokens
        is_shape = re.fullmatch(r"[0-9]{1,9}(x[0-9]{1,9}){1,8}", self.sample)
        return self.item_bytes * prod(map(int, self.sample.split("x"))) if is_shape else 0

    @property
    def forward_flops(self) -> int:
        return sum(layer.forward_flops for layer in self.layers)

    @property
    def backward_flops(self) -> int:
        return sum(layer.backward_flops for layer in self.layers)

    @property
    def written_bytes(self) -> int:
        return sum(layer.written_bytes for layer in self.layers)

    @property
    def saved_bytes(self) -> int:
        """The number of bytes that are stored from forward to backward, per sample."""
        return sum(layer.saved_bytes for layer in self.layers)

    def work(self, is_backward: bool) -> list[float]:
        """Return each layer's FLOPs, or ``FLOPS_PER_BYTE`` times its memory traffic in bytes if that is larger."""
        if is_backward:
            return [max(float(layer.backward_flops), FLOPS_PER_BYTE * layer.backward_bytes) for layer in self.layers]
        traffic = [FLOPS_PER_BYTE * (layer.read_bytes + layer.written_bytes) for layer in self.layers]
        return [max(float(layer.forward_flops), nbytes) for layer, nbytes in zip(self.layers, traffic, strict=True)]

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks of the model in forward order. The model can be cut after each of them."""
        return tuple(_block(name, [*layers]) for name, layers in groupby(self.layers, key=lambda layer: layer.block))

    def with_sequence(self, tokens: int) -> "ModelProfile":
        """Return the profile of a transformer for samples of ``tokens`` tokens, without measured times.

        The FLOPs of attention grow with the square of the tokens, and all other costs linearly. Raise InputError if the
        model is not a transformer, or if it has learned positions for fewer tokens.
        """
        if self.shape is None:
            raise InputError(f"sequence = {tokens}: {self.model} is not a transformer; remove `sequence`")
        ratio = tokens / self.shape.context
        layers = [
            layer._replace(**{
                key: round(getattr(layer, key) * ratio ** (2 if layer.kind == "Attention" and "flops" in key else 1))
                for key in Layer._fields[4:]
            })
            for layer in self.layers
        ]  # fmt: skip
        shape = self.shape._replace(context=tokens)
        model, sample = with_sequence(self.model, tokens), f"{tokens} tokens"
        return replace(self, model=model, sample=sample, layers=tuple(layers), shape=shape, measured=())

    def gradients(self, item_bytes: int = 4, backward: Sequence[float] | None = None) -> list[Gradient]:
        """Return the gradients in backward order, from the last layer to the first.

        ``backward`` is the relative time of each layer's backward. Default: an estimate from FLOPs and memory traffic.
        """
        work = self.work(is_backward=True) if backward is None else backward
        return gradients_of([layer.tensors for layer in self.layers], work, item_bytes)

    def write(self, path: Path | str) -> None:
        """Write the profile to ``path`` as JSON. An existing file is replaced atomically."""
        write_record(path, self)


def _block(name: str, layers: Sequence[Layer]) -> Block:
    costs = (
        (layer.parameters, layer.forward_flops, layer.backward_flops, layer.read_bytes + layer.written_bytes,
         layer.backward_bytes, layer.saved_bytes)
        for layer in layers
    )  # fmt: skip
    return Block._make([name, *map(sum, zip(*costs, strict=True)), layers[-1].output_bytes])


def read_model_profile(path: Path | str) -> ModelProfile:
    """Read a model profile from ``path``. Raise InputError if the file is invalid."""
    path = check_path("profile", path)
    try:
        return read_record(path, ModelProfile, FileBytes.MODEL_PROFILE)
    except InputError as error:
        raise InputError(str(error) if str(path) in str(error) else f"{path}: {error}") from error


def shipped_model_profiles() -> tuple[str, ...]:
    """Return the names of the model profiles that are part of Ringlab."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.json")))


def find_model_profile(name: Path | str) -> ModelProfile:
    """Return one of Ringlab's own profiles by its name, or read a profile from a ``.json`` file.

    Raise InputError if there is no such profile, or if the file is invalid.

    >>> find_model_profile("gpt2-xl").shape.context
    1024
    """
    text = str(name)
    if text.endswith(".json"):
        return read_model_profile(text)
    check_known(
        "profile", text, shipped_model_profiles(), ", or a file that `ringlab profile MODEL -o FILE.json` wrote"
    )
    return read_model_profile(SHIPPED / f"{text}.json")


KINDS = ("gpt", "bert", "llama")
WITH_POSITIONS = ("gpt", "bert")  # kinds that have a parameter for each position
NEEDED = ("layers", "width", "heads", "context", "vocabulary")
MOST = {"layers": 4096, "vocabulary": 1 << 24}  # the maximum of all other dimensions is 2**22
EXAMPLE = "gpt:layers=12,width=768,heads=12,context=1024,vocabulary=50257"

# Dimensions: Radford et al. (GPT-2), Devlin et al. (BERT; the number is that of the tokens), Touvron et al. (LLaMA and
# Llama 2), Grattafiori et al., The Llama 3 Herd of Models (https://arxiv.org/abs/2407.21783).
TRANSFORMERS = {
    "gpt2": EXAMPLE,
    "gpt2-medium": "gpt:layers=24,width=1024,heads=16,context=1024,vocabulary=50257",
    "gpt2-large": "gpt:layers=36,width=1280,heads=20,context=1024,vocabulary=50257",
    "gpt2-xl": "gpt:layers=48,width=1600,heads=25,context=1024,vocabulary=50257",
    "llama-7b": "llama:layers=32,width=4096,heads=32,context=2048,vocabulary=32000,hidden=11008",
    "llama2-13b": "llama:layers=40,width=5120,heads=40,context=4096,vocabulary=32000,hidden=13824",
    "llama2-70b": "llama:layers=80,width=8192,heads=64,kv_heads=8,context=4096,vocabulary=32000,hidden=28672",
    "llama3-8b": "llama:layers=32,width=4096,heads=32,kv_heads=8,context=8192,vocabulary=128256,hidden=14336",
    "llama3-70b": "llama:layers=80,width=8192,heads=64,kv_heads=8,context=8192,vocabulary=128256,hidden=28672",
    "llama3-405b": "llama:layers=126,width=16384,heads=128,kv_heads=8,context=8192,vocabulary=128256,hidden=53248",
    **{f"bert-base-{n}": f"bert:layers=12,width=768,heads=12,context={n},vocabulary=30522" for n in (128, 384, 512)},
    **{f"bert-large-{n}": f"bert:layers=24,width=1024,heads=16,context={n},vocabulary=30522" for n in (128, 384, 512)},
}


def is_transformer(text: str) -> bool:
    """Return whether ``text`` is the name of a known transformer, or describes one by its dimensions.

    >>> is_transformer("gpt:layers=2"), is_transformer("gpt2-xl"), is_transformer("resnet18")
    (True, True, False)
    """
    name, colon, _ = text.partition(":")
    return name in TRANSFORMERS or (name in KINDS and bool(colon))


def with_sequence(text: str, tokens: int) -> str:
    """Return a description of the transformer in ``text`` whose samples have ``tokens`` tokens.

    Raise InputError if the transformer has learned positions for fewer tokens.

    >>> with_sequence("llama3-8b", 2048), with_sequence("gpt2", 1024)
    ('llama3-8b:context=2048', 'gpt2')
    """
    kind, shape = parse_transformer(text)
    if tokens == shape.context:
        return text
    if kind in WITH_POSITIONS and tokens > shape.context:
        raise InputError(f"sequence = {tokens}: {text} has {shape.context} positions; use at most {shape.context}")
    return f"{text}{',' if ':' in text else ':'}context={tokens}"


def parse_transformer(text: str) -> tuple[str, TransformerShape]:
    """Return the kind and the dimensions of the transformer that ``text`` describes.

    Dimensions after a known name replace its defaults, as in "gpt2:context=512". Raise InputError for a missing,
    unknown or invalid dimension.

    >>> parse_transformer("gpt:layers=2,width=8,heads=2,context=16,vocabulary=100")[1].hidden
    32
    """
    name, _, dimensions = text.partition(":")
    kind, _, defaults = TRANSFORMERS.get(name, f"{name}:").partition(":")
    dimensions = f"{defaults},{dimensions}"
    values: dict[str, int] = {}
    for part in filter(None, (each.strip() for each in dimensions.split(","))):
        key, _, value = (each.strip() for each in part.partition("="))
        if key not in TransformerShape._fields:
            raise InputError(f"model {quote(text)}: unknown key {quote(key)}; {suggest(key, TransformerShape._fields)}")
        most = MOST.get(key, 1 << 22)
        if not (value.isascii() and value.isdigit()) or not 0 < int(value[:18]) <= most:
            raise InputError(f"model {quote(text)}: {key} must be an integer from 1 to {most}, not {quote(value)}")
        values[key] = int(value)
    missing = [key for key in NEEDED if key not in values]
    example = TRANSFORMERS["llama-7b"] if kind == "llama" else EXAMPLE
    if missing:
        raise InputError(f"model {quote(text)}: {', '.join(missing)} is missing; write {example}")
    values.setdefault("kv_heads", values["heads"])
    usual = 4 * values["width"] if kind != "llama" else -(-8 * values["width"] // 3 // 256) * 256
    values.setdefault("hidden", usual)
    if values["width"] % values["heads"] or values["heads"] % values["kv_heads"]:
        raise InputError(
            f"model {quote(text)}: width {values['width']} must be a multiple of heads {values['heads']}, and heads "
            f"a multiple of kv_heads {values['kv_heads']}"
        )
    return kind, TransformerShape(**values)


def flops_per_token(kind: str, shape: TransformerShape, *, is_frozen: bool = False) -> float:
    """Return the FLOPs per token of all matrices and of attention, for forward and backward together.

    A token attends to all earlier tokens, or to all tokens in *bert*. If ``is_frozen`` is True, the matrices have no
    gradients, which saves a third of their FLOPs.

    >>> round(flops_per_token(*parse_transformer("gpt2")) / 1e6)
    798
    """
    head = shape.width // shape.heads
    attention = shape.width * head * (2 * shape.heads + 2 * shape.kv_heads)
    mlp = (3 if kind == "llama" else 2) * shape.width * shape.hidden
    seen = shape.context if kind == "bert" else shape.context / 2
    matrices = shape.layers * (attention + mlp) + shape.vocabulary * shape.width
    return (4.0 if is_frozen else 6.0) * matrices + 12 * shape.layers * seen * shape.heads * head
