"""``ringlab accuracy``: predictions beside what was measured, of NCCL, of trainings, and of clusters emulated here."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Option

from collectives.errors import InputError
from ringlab.session import Session
from ringlab.shared.answer import Answer
from ringlab.shared.options import ExplainOpt, JsonOpt, drawing, with_groups
from ringlab.shared.output import check_outputs, deliver
from ringlab.shared.progress import Progress, TerminalProgress, draw_to
from scenarios import shipped


@dataclass(frozen=True)
class AccuracyOptions:
    """What is to be judged."""

    data: Annotated[
        Path | None,
        Option(metavar="DIR", help="Tables or series and what describes them; else the project's own."),
    ] = None
    only_put_aside: Annotated[
        bool, Option("--put-aside", help="Judge the systems that no fit ever saw, and only those.")
    ] = False
    calibrate: Annotated[
        int, Option(min=0, max=100, metavar="N", help="Show what N measured rows gain; of NCCL up to 7, and which.")
    ] = 0
    here: Annotated[
        bool, Option("--here", help="Instead, emulate the scenarios under emulated/ and compare (ten minutes).")
    ] = False
    only: Annotated[
        list[str] | None,
        Option(metavar="SCENARIO", help="With --here: this one under emulated/, or a file; may be repeated."),
    ] = None
    training: Annotated[bool, Option("--training", help="Instead, predict published trainings on many GPUs.")] = False
    meshes: Annotated[
        bool, Option("--meshes", help="Instead, predict published trainings of language models on meshes.")
    ] = False
    leave_one_out: Annotated[
        bool, Option("--leave-one-out", help="With --meshes: each source by a fit that has not seen it (minutes).")
    ] = False


@with_groups
def command(
    *,
    asked: AccuracyOptions,
    plot: Annotated[
        Path | None, drawing("a still picture", "Draw predicted against measured: .png, .svg or .pdf.")
    ] = None,
    explain: ExplainOpt = False,
    json_to: JsonOpt = None,
) -> None:
    """Predict published NCCL tables, trainings (--training, --meshes) or clusters emulated here (--here)."""
    check_outputs(json_to, plot)
    answer = _judge(asked, TerminalProgress())
    deliver(answer, json_to, draw_to(answer, plot, json_to), explain=explain)


def _judge(asked: AccuracyOptions, progress: Progress) -> Answer:
    if asked.leave_one_out and not asked.meshes:
        raise InputError("--leave-one-out is about --meshes; give both")
    if asked.meshes:
        if asked.here or asked.only or asked.training or asked.only_put_aside:
            raise InputError("--meshes goes with --data, --leave-one-out, --calibrate and --plot")
        from ringlab.commands.accuracy.meshes import mesh_accuracy  # scipy is slow to import

        session = Session(progress=progress)
        return mesh_accuracy(asked.data, leave_one_out=asked.leave_one_out, calibrate=asked.calibrate, session=session)
    if asked.training:
        if asked.here or asked.only or asked.calibrate:
            raise InputError("--training is about published trainings; beside it go --data, --put-aside and --plot")
        from ringlab.commands.accuracy.training import accuracy_training  # scipy is slow to import

        return accuracy_training(asked.data, only_put_aside=asked.only_put_aside, progress=progress)
    if asked.here:
        if asked.data is not None or asked.only_put_aside or asked.calibrate:
            raise InputError("--here emulates clusters on this machine; the other options are about NCCL's tables")
        from ringlab.commands.accuracy.here import accuracy_here  # others do without what runs ranks

        return accuracy_here([*map(name_of_emulated, asked.only or ())], progress=progress)
    if asked.only:
        raise InputError("--only says which clusters --here emulates; give both")
    from ringlab.commands.accuracy.nccl import accuracy  # as above

    return accuracy(asked.data, only_put_aside=asked.only_put_aside, calibrate=asked.calibrate, progress=progress)


def name_of_emulated(name: str) -> str:
    """Return a scenario by what says which: a file, a bundled one, or one under ``emulated/`` by its own name.

    >>> name_of_emulated("star8"), name_of_emulated("emulated/star8"), name_of_emulated("my.toml")
    ('emulated/star8', 'emulated/star8', 'my.toml')
    """
    return f"emulated/{name}" if f"emulated/{name}" in shipped() else name
