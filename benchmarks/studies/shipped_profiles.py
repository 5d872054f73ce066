"""Write the built-in model profiles: ``python -m benchmarks.studies.shipped_profiles`` (a minute, without weights)."""

from collectives.records.model_profile import SHIPPED, TRANSFORMERS
from realcomm.profiling.meta import profile_on_meta
from realcomm.profiling.model_sources import find_model

TORCHVISION = (
    "alexnet", "densenet121", "efficientnet_b0", "inception_v3", "mobilenet_v2", "resnet18", "resnet34", "resnet50",
    "resnet101", "resnet152", "resnext101_32x8d", "vgg16", "vit_b_16",
)  # fmt: skip


def write_shipped() -> None:
    """Write a profile of each model."""
    for name in (*TORCHVISION, *TRANSFORMERS):
        profile_on_meta(find_model(name)).write(SHIPPED / f"{name}.json")


if __name__ == "__main__":
    write_shipped()
