"""The command ``ringlab profile``."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ringlab.shared.console import make_console
from ringlab.shared.options import JsonOpt
from ringlab.shared.output import check_outputs, write_answer
from ringlab.shared.progress import TerminalProgress

if TYPE_CHECKING:
    from ringlab.answers.model_profiling import ProfileAnswer


def profile(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="Of torchvision, one like gpt2-xl, FILE.py:NAME (executed), or gpt:layers=12,width=768,...",
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE.json", help="Keep the profile, for predictions.")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Time batches of so many samples; else nothing is run.")
    ] = None,
    device: Annotated[str, typer.Option(metavar="cpu|cuda", help="What is timed.")] = "cpu",
    precision: Annotated[str, typer.Option(metavar="float32|bf16|fp16")] = "float32",
    steps: Annotated[int, typer.Option(min=1, metavar="N", help="Steps whose medians are taken.")] = 5,
    threads: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Of a processor: 1 as each of many ranks of a machine has.")
    ] = None,
    shape: Annotated[str | None, typer.Option(metavar="3,224,224", help="Of one sample.")] = None,
    dataset: Annotated[
        str | None, typer.Option(metavar="NAME", help="Time the loading of these data too: imagefolder, cifar10, ...")
    ] = None,
    data_folder: Annotated[Path | None, typer.Option(metavar="DIR", help="Where they are.")] = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="Take the times from what torch's profiler wrote.")
    ] = None,
    json_to: JsonOpt = None,
) -> None:
    """Say what a model computes, reads and keeps, layer by layer, and how long that takes on one device."""
    from collectives.input_files import check_input
    from collectives.training.workload import is_file_reference
    from ringlab.answers.model_profiling import profile_model
    from ringlab.shared.progress import computing
    from ringlab.terminal.profile_table import show_profile

    if trace is not None:
        check_input(trace)
    if is_file_reference(model):
        from realcomm.training.model_files import check_model_file

        check_model_file(model)  # no output overwrites it
    check_outputs(json_to, output)
    with computing(TerminalProgress(), f"profiling {model}"):
        answer = profile_model(
            model, shape=shape, batch_size=batch_size, device=device, precision=precision, steps=steps, dataset=dataset,
            data_folder=data_folder, trace=trace, threads=threads,
        )  # fmt: skip
    if output is not None:
        answer = replace(answer, file=str(output))
        write_answer(answer, json_to, show_profile, partial(_keep, answer, output, json_to != "-"))
    else:
        write_answer(answer, json_to, show_profile)


def _keep(answer: "ProfileAnswer", output: Path, is_told: bool) -> None:
    """Write the profile, and say so once it is written."""
    answer.profile.write(output)
    if is_told:
        make_console().print(f"Kept in {output}.", soft_wrap=True)
