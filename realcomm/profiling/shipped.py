"""Writes the profiles that are shipped: ``python -m realcomm.profiling.shipped`` (a minute; no weights are loaded)."""

from dataclasses import replace

from collectives.records.model_profile import SHIPPED
from realcomm.profiling.meta import profile_on_meta
from realcomm.profiling.model_sources import find_model

TORCHVISION = (
    "alexnet", "densenet121", "efficientnet_b0", "inception_v3", "mobilenet_v2", "resnet18", "resnet34", "resnet50",
    "resnet101", "resnet152", "resnext101_32x8d", "vgg16", "vit_b_16",
)  # fmt: skip

# Dimensions: Radford et al. (GPT-2), Devlin et al. (BERT), Touvron et al. (LLaMA); the number is that of the tokens.
TRANSFORMERS = {
    "gpt2": "gpt:layers=12,width=768,heads=12,context=1024,vocabulary=50257",
    "gpt2-medium": "gpt:layers=24,width=1024,heads=16,context=1024,vocabulary=50257",
    "gpt2-large": "gpt:layers=36,width=1280,heads=20,context=1024,vocabulary=50257",
    "gpt2-xl": "gpt:layers=48,width=1600,heads=25,context=1024,vocabulary=50257",
    "llama-7b": "llama:layers=32,width=4096,heads=32,context=2048,vocabulary=32000,hidden=11008",
    **{f"bert-base-{n}": f"bert:layers=12,width=768,heads=12,context={n},vocabulary=30522" for n in (128, 384, 512)},
    **{f"bert-large-{n}": f"bert:layers=24,width=1024,heads=16,context={n},vocabulary=30522" for n in (128, 384, 512)},
}


def write_shipped() -> None:
    """Write a profile of each model."""
    for name, text in {**{name: name for name in TORCHVISION}, **TRANSFORMERS}.items():
        replace(profile_on_meta(find_model(text)), model=name).write(SHIPPED / f"{name}.json")


if __name__ == "__main__":
    write_shipped()
