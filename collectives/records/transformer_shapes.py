"""Transformers by their dimensions: ``gpt:layers=12,width=768,heads=12,context=1024,vocabulary=50257``.

Three kinds: *gpt* (layer norm before each part, learned positions, GELU, the head shares the embedding: Radford et al.,
Language Models are Unsupervised Multitask Learners), *bert* (layer norm after each part, token types, every token sees
every other: Devlin et al., https://arxiv.org/abs/1810.04805; without pooler, with the head of masked words) and *llama*
(RMS norm, rotary positions, gated MLP, a head of its own: Touvron et al., https://arxiv.org/abs/2302.13971).
"""

from collectives.errors import InputError
from collectives.quoting import quote, suggest
from collectives.records.model_profile import TransformerShape

KINDS = ("gpt", "bert", "llama")
NEEDED = ("layers", "width", "heads", "context", "vocabulary")
MOST = {"layers": 4096, "vocabulary": 1 << 24}  # of other dimensions 2**22
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
    """Return whether a model is given by its dimensions, or is a transformer that is known by name.

    >>> is_transformer("gpt:layers=2"), is_transformer("gpt2-xl"), is_transformer("resnet18")
    (True, True, False)
    """
    return text in TRANSFORMERS or (text.partition(":")[0] in KINDS and ":" in text)


def parse_transformer(text: str) -> tuple[str, TransformerShape]:
    """Return kind and dimensions. Raise InputError for a key that is missing, unknown or no whole number above 0.

    >>> parse_transformer("gpt:layers=2,width=8,heads=2,context=16,vocabulary=100")[1].hidden
    32
    """
    kind, _, given = TRANSFORMERS.get(text, text).partition(":")
    found: dict[str, int] = {}
    for part in filter(None, (each.strip() for each in given.split(","))):
        key, _, value = (each.strip() for each in part.partition("="))
        if key not in TransformerShape._fields:
            raise InputError(f"model {quote(text)}: {quote(key)} is no key; {suggest(key, TransformerShape._fields)}")
        most = MOST.get(key, 1 << 22)
        if not (value.isascii() and value.isdigit()) or not 0 < int(value[:18]) <= most:
            raise InputError(f"model {quote(text)}: {key} is {quote(value)}; give a whole number from 1 to {most}")
        found[key] = int(value)
    missing = [key for key in NEEDED if key not in found]
    if missing:
        raise InputError(f"model {quote(text)}: {', '.join(missing)} is missing; write {EXAMPLE}")
    found.setdefault("kv_heads", found["heads"])
    usual = 4 * found["width"] if kind != "llama" else -(-8 * found["width"] // 3 // 256) * 256
    found.setdefault("hidden", usual)
    if found["width"] % found["heads"] or found["heads"] % found["kv_heads"]:
        raise InputError(
            f"model {quote(text)}: width {found['width']} must be a multiple of heads {found['heads']}, and those of "
            f"kv_heads {found['kv_heads']}"
        )
    return kind, TransformerShape(**found)


def flops_per_token(kind: str, shape: TransformerShape) -> float:
    """Return the FLOPs of a token forward and back: of matrices, and of attention to those before it or to all.

    >>> round(flops_per_token(*parse_transformer("gpt2")) / 1e6)
    798
    """
    head = shape.width // shape.heads
    attention = shape.width * head * (2 * shape.heads + 2 * shape.kv_heads)
    mlp = (3 if kind == "llama" else 2) * shape.width * shape.hidden
    seen = shape.context if kind == "bert" else shape.context / 2
    matrices = shape.layers * (attention + mlp) + shape.vocabulary * shape.width
    return 6.0 * matrices + 12 * shape.layers * seen * shape.heads * head
