"""``ProfileAnswer``: what ``ringlab profile`` found of a model."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from collectives.checks import check_text
from collectives.errors import InputError
from collectives.quoting import quote
from collectives.records.model_profile import ModelProfile, find_model_profile, shipped_model_profiles
from ringlab.shared.answer import SCHEMA_VERSION, Record

if TYPE_CHECKING:
    from collectives.training.workload import Training


class ProfiledBlock(NamedTuple):
    """A block of a model: work per sample, and seconds of a batch where that was measured."""

    name: str
    parameters: int
    forward_flops: int
    backward_flops: int
    saved_bytes: int
    forward_s: float | None
    backward_s: float | None


@dataclass(frozen=True, repr=False)
class ProfileAnswer(Record):
    """A model's profile, and where it was written."""

    profile: ModelProfile
    file: str | None = None

    def __repr__(self) -> str:
        return f"<ProfileAnswer of {self.profile.model}>"

    def blocks(self) -> list[ProfiledBlock]:
        """Return the blocks, with the times of the last measurement."""
        measured = self.profile.measured[-1] if self.profile.measured else None
        found, first = list[ProfiledBlock](), 0
        for block in self.profile.blocks:
            last = first + sum(layer.block == block.name for layer in self.profile.layers)
            times = (None, None) if measured is None else (
                sum(measured.forward[first:last]), sum(measured.backward[first:last]))  # fmt: skip
            found.append(
                ProfiledBlock(
                    block.name, block.parameters, block.forward_flops, block.backward_flops, block.saved_bytes, *times
                )
            )
            first = last
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return what the command writes as JSON; ``measured`` is the last one."""
        profile = self.profile
        whole = {key: getattr(profile, key) for key in ("model", "sample", "source", "parameters", "forward_flops",
                                                        "backward_flops", "saved_bytes")}  # fmt: skip
        measured = {}
        if profile.measured:
            last = profile.measured[-1]
            measured = {key: value for key, value in last._asdict().items() if not isinstance(value, tuple)}
            measured |= {"forward": sum(last.forward), "backward": sum(last.backward)}
        blocks = [block._asdict() for block in self.blocks()]
        found = {"schema_version": SCHEMA_VERSION, "kind": "profile", **whole, "blocks": blocks}
        return found | ({"measured": measured} if measured else {}) | ({"file": self.file} if self.file else {})


def parse_shape(text: str | None) -> tuple[int, ...] | None:
    """Return the shape of a sample. Raise InputError.

    >>> parse_shape("3,32,32")
    (3, 32, 32)
    """
    if text is None:
        return None
    parts = [part.strip() for part in check_text("shape", text, "3,224,224").split(",")]
    if not all(part.isascii() and part.isdigit() and 0 < int(part[:12]) < 1 << 30 for part in parts) or len(parts) > 6:
        raise InputError(f"--shape {quote(text)}: give whole numbers from 1 on with commas between, as 3,224,224")
    return tuple(map(int, parts))


def profile_model(
    model: str,
    *,
    shape: str | None = None,
    batch_size: int | None = None,
    device: str = "cpu",
    precision: str = "float32",
    steps: int = 5,
    dataset: str | None = None,
    data_folder: Path | str | None = None,
    trace: Path | str | None = None,
    threads: int | None = None,
) -> ProfileAnswer:
    """Return the profile of a model, with the times of a batch where ``batch_size`` is given.

    ``model`` is one of torchvision, FILE.py:NAME (executed in a process of its own, and here to be timed), a
    transformer by its dimensions, or a shipped profile. ``trace`` is what torch's profiler wrote; else it is measured
    here, on a processor with ``threads``. Raises InputError.

    >>> profile_model("gpt:layers=1,width=8,heads=2,context=4,vocabulary=10").profile.parameters
    1000
    """
    if batch_size is None:
        _refuse_without_batch(trace, dataset)
    if model in shipped_model_profiles() and batch_size is None and shape is None:
        return ProfileAnswer(find_model_profile(model))
    from realcomm.profiling.tracing import trace_model

    loading = None if dataset is None else _loading(model, dataset, data_folder, shape, batch_size)
    profile = trace_model(model, parse_shape(shape))
    if batch_size is None:
        return ProfileAnswer(profile)
    if trace is not None:
        from realcomm.profiling.tracing import measured_by_profiler

        measured = measured_by_profiler(trace, profile, batch_size, device)
    else:
        from realcomm.profiling.measured import measure  # imports torch
        from realcomm.profiling.model_sources import find_model

        source = find_model(model, parse_shape(shape))
        measured = measure(
            source, profile, batch_size, device=device, precision=precision, steps=steps, loading=loading,
            threads=threads,
        )  # fmt: skip
    return ProfileAnswer(replace(profile, measured=(measured,)))


def _loading(
    model: str, dataset: str, data_folder: Path | str | None, shape: str | None, batch_size: int | None
) -> "Training":
    """Return a training that loads data of the model's shape. Raise InputError where they are not there."""
    from collectives.training.workload import Training
    from realcomm.profiling.model_sources import find_model  # imports torch
    from realcomm.training.datasets import load_images

    sample = find_model(model, parse_shape(shape)).sample
    pixels = sample if len(sample) == 3 else (3, 32, 32)
    images = 10 * (batch_size or 1)
    loading = Training(None, dataset=dataset, data_folder=data_folder, image_shape=pixels, images=images)
    load_images(loading, train=True)
    return loading


def _refuse_without_batch(trace: Path | str | None, dataset: str | None) -> None:
    for option, given in (("--trace", trace), ("--dataset", dataset)):
        if given is not None:
            raise InputError(f"{option} {given}: what is timed is a batch; give its size too, --batch-size 32")
