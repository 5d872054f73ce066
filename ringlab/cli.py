"""The command line: each command reads its input, has the answer made, and shows it.

What the commands need is imported by those that need it, so that --help need not wait for numpy.
"""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ringlab.commands.bench import bench
from ringlab.commands.winners import winners
from ringlab.terminal.options import (
    BackendOpt,
    CalibrationOpt,
    EmulateOpt,
    JsonOpt,
    ScenarioArg,
    SetOpt,
    TimeoutOpt,
    TraceOpt,
)
from ringlab.terminal.output import give
from ringlab.terminal.progress import Progress, is_first_rank
from ringlab.terminal.shutdown import ending_in_order

app = typer.Typer(
    help="Predict, run, compare and see how a training job scales.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the command line and exit: 0 done, 1 the run or the check failed, 2 the input was refused."""
    try:
        with ending_in_order():
            app()
    except Exception as error:
        from collectives.errors import InputError, RunFailed

        if not isinstance(error, InputError | RunFailed):
            raise
        if is_first_rank():
            print(f"ringlab: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(2 if isinstance(error, InputError) else 1)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"ringlab {version('ringlab')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Predict, run, compare and see how a training job scales."""


def _finish(answer: dict[str, Any], scenario: Any, json_to: str | None) -> None:
    from ringlab.answers.conclusions import conclude
    from ringlab.terminal.tables import show

    answer["conclusions"] = conclude(answer, scenario)
    give(answer, json_to, lambda console: show(answer, console))


@app.command()
def predict(
    scenario: ScenarioArg,
    engine: Annotated[
        str | None, typer.Option(metavar="simpy|compiled", help="What simulates; whichever suits the size unless said.")
    ] = None,
    calibration: CalibrationOpt = None,
    trace: TraceOpt = None,
    json_to: JsonOpt = None,
    set_keys: SetOpt = None,
) -> None:
    """Simulate: times, algbw, busbw, training step by phase, scaling efficiency."""
    from ringlab.answers import answer, calibration_source
    from scenarios import load
    from simcomm.engine_choice import check_engine

    check_engine(engine)
    asked = load(scenario, set_keys or ())
    numbers = calibration_source.find(asked, calibration)
    found = answer.predict(asked, numbers, engine)
    if trace is not None:
        answer.one_trace(asked, numbers, None, None, engine).write(trace)
    _finish(found, asked, json_to)


@app.command()
def run(
    scenario: ScenarioArg,
    backend: BackendOpt = "gloo",
    emulate: EmulateOpt = False,
    calibration: CalibrationOpt = None,
    timeout: TimeoutOpt = 600.0,
    trace: TraceOpt = None,
    json_to: JsonOpt = None,
    set_keys: SetOpt = None,
) -> None:
    """Run the scenario on real processes of this machine; also under torchrun."""
    from realcomm.launching.launcher import check_launch
    from ringlab.answers import answer, calibration_source
    from scenarios import load

    _check_emulate(emulate)
    asked = load(scenario, set_keys or ())
    check_launch(asked.cluster.world_size, backend, timeout)
    progress = Progress()
    if not asked.cluster.is_here:
        progress.console.print(
            f"warning: {asked.cluster.title} is not this machine; its {asked.cluster.world_size} ranks run here, "
            "over this machine's memory",
            markup=False,
        )
    numbers = calibration_source.to_choose(asked, calibration, timeout, progress)
    found, measured = answer.measure(asked, numbers, backend, timeout, progress)
    if trace is not None and measured is not None and is_first_rank():
        measured.write(trace)
    _finish(found, asked, json_to)


def _check_emulate(emulate: bool) -> None:
    if emulate:
        from collectives.errors import InputError

        raise InputError("--emulate: not yet")


@app.command()
def compare(
    scenario: ScenarioArg,
    backend: BackendOpt = "gloo",
    emulate: EmulateOpt = False,
    calibration: CalibrationOpt = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE.html", help="Write a report with pictures.")] = None,
    timeout: TimeoutOpt = 600.0,
    json_to: JsonOpt = None,
    set_keys: SetOpt = None,
) -> None:
    """Predict and run, and show the error of each prediction."""
    from collectives.errors import InputError
    from realcomm.launching.launcher import check_launch
    from ringlab.answers import answer, calibration_source
    from scenarios import load
    from simcomm.model.trouble import NONE

    _check_emulate(emulate)
    asked = load(scenario, set_keys or ())
    if not asked.cluster.is_here:
        raise InputError(
            f"{asked.path}: cluster: {asked.cluster.title} is not this machine; comparing it needs --emulate"
        )
    if asked.trouble != NONE:
        raise InputError(
            f"{asked.path}: trouble: it cannot be brought about on this machine; "
            "leave [trouble] out, or predict it beside as [what_if.trouble]"
        )
    check_launch(asked.cluster.world_size, backend, timeout)
    progress = Progress()
    numbers = calibration_source.find_or_make(asked, calibration, timeout, progress)
    predicted = answer.predict(asked, numbers)
    measured, _ = answer.measure(asked, numbers, backend, timeout, progress)
    found = answer.compare(predicted, measured)
    _finish(found, asked, json_to)
    if report is not None and is_first_rank():
        from ringlab.answers.report import write_report

        write_report(found, asked, numbers, report)


@app.command()
def animate(
    source: Annotated[str, typer.Argument(metavar="SCENARIO|TRACE", help="A scenario, or a .trace.json file.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help=".gif: messages moving; .png: ranks against time.")
    ],
    algorithm: Annotated[
        str | None, typer.Option(help="Which of the scenario's algorithms; the last unless said.")
    ] = None,
    size: Annotated[str | None, typer.Option(help="How large a buffer; the scenario's largest unless said.")] = None,
    calibration: CalibrationOpt = None,
    json_to: JsonOpt = None,
    set_keys: SetOpt = None,
) -> None:
    """Draw the messages of a collective: moving over the topology, or ranks against time."""
    import viz
    from ringlab.answers.pictured_trace import to_draw

    shown = to_draw(source, algorithm, size, calibration, set_keys or (), Progress().console)
    viz.draw(shown, output)
    drawn = {"schema_version": 1, "kind": "picture", "title": shown.title, "file": str(output)}
    give(drawn, json_to, lambda console: console.print(f"{shown.title}: {output}", markup=False, soft_wrap=True))


@app.command()
def check(
    algorithms: Annotated[str, typer.Argument(metavar="FILE.py[:NAME]|COLLECTIVE/NAME|library", help="Yours or ours.")],
    world_sizes: Annotated[str, typer.Option(metavar="LIST", help="Such as 1-8,16.")] = "1-33",
    json_to: JsonOpt = None,
) -> None:
    """Prove an algorithm right at many world sizes, or say what is wrong; its cost stands beside the least possible."""
    from ringlab.answers.proofs import check as prove
    from ringlab.answers.proofs import chosen, parse_world_sizes
    from ringlab.terminal.tables import show_verdicts

    sizes = parse_world_sizes(world_sizes)
    verdicts = [prove(algorithm, sizes) for algorithm in chosen(algorithms)]
    answer = {"schema_version": 1, "kind": "check", "algorithms": [verdict.as_entry() for verdict in verdicts]}
    give(answer, json_to, lambda console: show_verdicts(verdicts, console))
    if any(verdict.problem for verdict in verdicts):
        raise typer.Exit(1)


app.command()(bench)
app.command()(winners)


@app.command()
def calibrate(
    scenario: Annotated[
        str | None, typer.Argument(metavar="[SCENARIO]", help="Calibrate what this scenario needs.")
    ] = None,
    ranks: Annotated[int, typer.Option(min=1, metavar="N", help="Processes of this machine, without a scenario.")] = 2,
    timeout: TimeoutOpt = 600.0,
    json_to: JsonOpt = None,
    set_keys: SetOpt = None,
) -> None:
    """Measure this machine's messages, reductions and training phases, and keep them for predictions."""
    from dataclasses import asdict

    from collectives.records.calibration import cache_file
    from ringlab.answers import calibration_source
    from ringlab.terminal.tables import show_calibration
    from scenarios import load

    asked = load(scenario, set_keys or ()) if scenario is not None else None
    ranks = (calibration_source.needed_ranks(asked) or ranks) if asked else ranks
    trainings = list(asked.trainings) if asked else []
    found = calibration_source.make(ranks, trainings, timeout, Progress())
    answer = {"kind": "calibration", "file": str(cache_file(ranks)), **asdict(found)}
    give(answer, json_to, lambda console: show_calibration(found, cache_file(ranks), console))


@app.command()
def doctor(json_to: JsonOpt = None) -> None:
    """Look at what this machine can run, and what is missing."""
    from ringlab.answers.doctor import examine
    from ringlab.terminal.tables import show_findings

    findings = examine()
    answer = {"schema_version": 1, "kind": "doctor", "findings": [finding._asdict() for finding in findings]}
    give(answer, json_to, lambda console: show_findings(findings, console))


@app.command()
def hardware(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A machine, GPU, link or NIC.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Draw a machine.")] = None,
    nodes: Annotated[int, typer.Option(min=1, metavar="N", help="So many of it, with their network.")] = 1,
    json_to: JsonOpt = None,
) -> None:
    """List the hardware catalogue, or show a part with its sources; -o FILE.png draws a machine's topology."""
    from ringlab.answers.hardware import look_up

    found, show = look_up(name, output, nodes)
    give(found, json_to, lambda console: show(found, console))


@app.command(name="list")
def list_all(json_to: JsonOpt = None) -> None:
    """List the algorithms, presets and scenarios that there are."""
    from ringlab.answers.listing import listing
    from ringlab.terminal.tables import show_listing

    found = listing()
    give(found, json_to, lambda console: show_listing(found, console))
