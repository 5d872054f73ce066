"""``ringlab profile``: show the FLOPs, bytes and memory of a model by block, and time the model on one device."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from typer import Argument

from collectives.checks import check_text
from collectives.errors import InputError
from collectives.quoting import quote
from collectives.records.model_profile import ModelProfile, find_model_profile, shipped_model_profiles
from collectives.training.workload import is_file_reference
from collectives.units import format_size, format_time
from realcomm.profiling.tracing import trace_model
from realcomm.training.model_files import check_model_file
from ringlab.shared.answer import Answer
from ringlab.shared.options import JsonOpt, option, output_option, with_groups
from ringlab.shared.output import check_outputs, deliver, make_console
from ringlab.shared.progress import TerminalProgress, computing
from ringlab.table import MOST_ROWS, Line, Part, Table, format_digits, format_or_dash


@dataclass(frozen=True)
class ProfileOptions:
    """The options of ``ringlab profile``. If the batch size is None, the model is not measured."""

    batch_size: int | None = option(
        None,
        help="Measure with this batch size. Default: only show FLOPs and bytes, without running the model.",
        min=1,
        metavar="N",
    )
    device: str = option("cpu", help="Device to measure on.", metavar="cpu|cuda")
    precision: str = option("float32", help="Data type of the computation.", metavar="float32|bf16|fp16")
    steps: int = option(5, help="Number of measured steps; the median is reported.", min=1, metavar="N")
    threads: int | None = option(
        None, help="Number of CPU threads. Use 1 to match ranks that share this machine.", min=1, metavar="N"
    )
    shape: str | None = option(None, help="Shape of one sample. Default: the model's usual shape.", metavar="3,224,224")


@with_groups
def command(
    model: Annotated[
        str,
        Argument(
            metavar="MODEL",
            help=(
                "torchvision model, known model such as gpt2-xl, FILE.py:NAME (the file is executed), or "
                "gpt:layers=12,width=768,..."
            ),
        ),
    ],
    output: Annotated[Path | None, output_option("Write a profile that predictions can read.", "FILE.json")] = None,
    *,
    timing: ProfileOptions,
    json_to: JsonOpt = None,
) -> None:
    """Show the FLOPs, bytes and memory of each block of a model, and the model's time on one device."""
    if is_file_reference(model):
        check_model_file(model)  # no output overwrites it
    check_outputs(json_to, output)
    with computing(TerminalProgress(), f"profiling {model}"):
        answer = profile_model(model, **vars(timing))
    if output is None:
        deliver(answer, json_to)
        return

    def keep() -> None:
        answer.profile.write(output)
        make_console(quiet=json_to == "-").print(f"Saved to {output}.", soft_wrap=True)

    deliver(replace(answer, file=str(output)), json_to, keep)


SUMS = ("parameters", "forward_flops", "backward_flops", "saved_bytes")


@dataclass(frozen=True, repr=False)
class ProfileAnswer(Answer):
    """The result of ``ringlab profile``."""

    kind = "profile"

    profile: ModelProfile
    file: str | None = None

    @property
    def title(self) -> str:
        return self.profile.model

    def to_dict(self) -> dict[str, Any]:
        profile, content = self.profile, super().to_dict()
        del content["profile"]
        file = {"file": content.pop("file")} if self.file else {}
        content |= {key: getattr(profile, key) for key in ("model", "sample", "source", *SUMS)}
        content["blocks"] = self._blocks()
        for last in profile.measured[-1:]:
            measured = {key: value for key, value in last._asdict().items() if not isinstance(value, tuple)}
            content["measured"] = measured | {"forward": sum(last.forward), "backward": sum(last.backward)}
        return content | file

    def _blocks(self) -> list[dict[str, Any]]:
        """Return each block's work per sample and measured times. The times are None if no batch was measured."""
        layers, blocks = [layer.block for layer in self.profile.layers], []
        for block in self.profile.blocks:
            times: dict[str, float | None] = {"forward_s": None, "backward_s": None}
            for last in self.profile.measured[-1:]:
                for name, seconds in (("forward_s", last.forward), ("backward_s", last.backward)):
                    times[name] = sum(time for time, of in zip(seconds, layers, strict=True) if of == block.name)
            blocks.append({"name": block.name, **{key: getattr(block, key) for key in SUMS}, **times})
        return blocks

    def show(self) -> Iterator[Part]:
        profile, blocks = self.profile, self._blocks()
        shown = blocks if len(blocks) <= MOST_ROWS else [*blocks[: MOST_ROWS // 2], *blocks[-MOST_ROWS // 2 :]]
        rows = list[list[str]]()
        for block in shown:
            flops = [format_digits(block[key] / 1e9) for key in ("forward_flops", "backward_flops")]
            times = [format_or_dash(block[key], format_time) for key in ("forward_s", "backward_s")]
            saved = format_size(block["saved_bytes"])
            rows.append([block["name"], f"{block['parameters']:,}", *flops, saved, *times])
        if len(shown) < len(blocks):
            rows.insert(MOST_ROWS // 2, [f"... {len(blocks) - len(shown)} more", *[""] * 6])
        headings = ["block", "parameters", "forward\nGFLOP", "backward\nGFLOP", "saved", "forward", "backward"]
        columns = len(headings) if profile.measured else 5
        title = f"{profile.model}: {profile.parameters:,} parameters; a sample is {profile.sample}"
        yield Table(title, headings[:columns], [row[:columns] for row in rows])
        yield Line(
            f"Per sample, forward takes {format_digits(profile.forward_flops / 1e9)} GFLOP and backward "
            f"{format_digits(profile.backward_flops / 1e9)}. Autograd saves {format_size(profile.saved_bytes)} in "
            "float32, without fused kernels. `predict --devices` and `search` predict the memory of a training run.",
            wrap=True,
        )
        for measured in profile.measured[-1:]:
            rate = measured.batch_size / measured.step if measured.step else 0.0
            yield Line(
                f"A batch of {measured.batch_size} in {measured.precision} on {measured.device}: forward "
                f"{format_time(sum(measured.forward))}, backward {format_time(sum(measured.backward))}, optimizer "
                f"{format_time(measured.optimizer)}; {format_digits(rate)} samples/s."
            )


def profile_model(model: str, **timing: Any) -> ProfileAnswer:
    """Return the profile of a model. With ``batch_size``, also time a batch.

    ``model`` is a torchvision model, FILE.py:NAME, a transformer such as ``gpt:layers=12,width=768``, or a built-in
    profile. A file is executed in a subprocess, and also in this process to time a batch. ``timing`` has the fields of
    ``ProfileOptions``. Raises InputError if the model or a field is invalid.

    >>> profile_model("gpt:layers=1,width=8,heads=2,context=4,vocabulary=10").profile.parameters
    1000
    """
    check_text("model", model, "resnet50")
    options = ProfileOptions(**timing)
    batch_size, shape = options.batch_size, _parse_shape(options.shape)
    for name in ("device", "precision", "steps", "threads") if batch_size is None else ():
        if (value := getattr(options, name)) != getattr(ProfileOptions, name):
            raise InputError(f"--{name} {value} only applies to measured times; add --batch-size N to measure them")
    is_shipped = model in shipped_model_profiles() and batch_size is None and shape is None
    profile = find_model_profile(model) if is_shipped else trace_model(model, shape)
    if batch_size is None:
        return ProfileAnswer(profile)
    from realcomm.profiling.measured import measure  # imports torch
    from realcomm.profiling.model_sources import find_model

    measured = measure(
        find_model(model, shape), profile, batch_size, device=options.device, precision=options.precision,
        steps=options.steps, threads=options.threads,
    )  # fmt: skip
    return ProfileAnswer(replace(profile, measured=(measured,)))


def _parse_shape(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    parts = [part.strip() for part in check_text("shape", text, "3,224,224").split(",")]
    if not all(part.isascii() and part.isdigit() and 0 < int(part[:12]) < 1 << 30 for part in parts) or len(parts) > 6:
        raise InputError(f"--shape {quote(text)} must be 1 to 6 positive integers, such as 3,224,224")
    return tuple(map(int, parts))
