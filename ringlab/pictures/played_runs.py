"""The runs that a player shows of a scenario: its algorithms, each with what would be without what limits it."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from collectives.errors import ProgramError, TooLarge
from collectives.records.limits import RunLimits, find_limits
from collectives.records.trace import Trace
from collectives.units import format_bandwidth, format_time
from ringlab.pictures.traces import OneRun, algorithm_names
from ringlab.shared.progress import Tick
from scenarios import LoadedScenario
from simcomm.model.trouble import NO_TROUBLE
from viz.player.page import MOST_RUNS
from viz.player.runs import PlayedRun

WIDER = 2.0  # times the bandwidth of a full link, in the simulation that says what it would bring


def predict_runs(
    run: OneRun, tick: Tick = lambda *_: None, leave_out: Callable[[TooLarge], None] | None = None
) -> list[PlayedRun]:
    """Simulate a run of a scenario or, where it names no algorithm, one of each, the last that fit a player.

    Of one algorithm under trouble there is also the run without. What is too large is told to ``leave_out`` and left
    out, if that is given. Raises InputError for a name that is not there, TooLarge for what is not to be left out.
    """
    names = [] if run.algorithm is not None else algorithm_names(run.scenario)[-MOST_RUNS:]
    every = [replace(run, algorithm=name) for name in names] or [run]
    for one in every if leave_out is None else ():
        with suppress(ProgramError):  # it is shown up to where it goes wrong
            one.check_recordable()
    runs = []
    for number, one in enumerate(every):
        tick(0, number, len(every), f"algorithms, {one.algorithm or 'the last'}")
        try:
            trace = one.simulate_to_failure()
        except TooLarge as error:
            if leave_out is None:
                raise
            leave_out(error)
            continue
        runs.append(PlayedRun(trace, short_name(trace), _say_what_if(one, trace)))
    if len(runs) == 1 and run.scenario.trouble != NO_TROUBLE:
        quiet = replace(every[0], scenario=replace(run.scenario, trouble=NO_TROUBLE)).simulate()
        runs.append(PlayedRun(quiet, f"{short_name(quiet)} without trouble"))
    return runs


def beside_measured(predicted: Sequence[PlayedRun], measured: Sequence[Trace]) -> list[PlayedRun]:
    """Return the measured runs, each before its prediction; the newest measured ones where there are too many."""
    runs = []
    for trace in measured:
        runs.append(PlayedRun(trace, f"{short_name(trace)}, measured"))
        runs += [replace(run, name=f"{run.name}, predicted") for run in predicted if run.trace.title == trace.title]
    return runs[-(MOST_RUNS - MOST_RUNS % 2) :]


def short_name(trace: Trace) -> str:
    """Return the algorithm's name without its collective: ``ring`` for ``all_reduce/ring``."""
    return trace.title.partition("/")[2] or trace.title


def _say_what_if(run: OneRun, trace: Trace) -> str:
    """Return what the run would take if the cables that stand out were as good as the others, or wider."""
    limits = find_limits(trace)
    if not limits.standing_out or not trace.is_complete:
        return ""
    cables = {
        frozenset((trace.links[link].src, trace.links[link].dst))
        for cable in limits.cables[: limits.standing_out]
        for link in cable.links
    }
    then = replace(run, scenario=_mend(run.scenario, cables, limits)).simulate().elapsed
    one = limits.standing_out == 1
    if limits.kind == "slow":
        full = "the link had its" if one else "all of them had their"
        full = f"{full} {format_bandwidth(limits.cables[0].bandwidth)}"
        return f"The run takes {format_time(trace.elapsed)}; it would take {format_time(then)} if {full}."
    where = "there" if one else "on all of them"
    return f"With {WIDER:g} times the bandwidth {where}: {format_time(trace.elapsed)} → {format_time(then)}."


def _mend(scenario: LoadedScenario, cables: set[frozenset[str]], limits: RunLimits) -> LoadedScenario:
    """Return the scenario with its slow cables mended, or its full ones wider."""
    troubled = [one for one in scenario.trouble.links if frozenset(one.between) in cables]
    if limits.kind == "slow" and troubled:
        kept = tuple(one for one in scenario.trouble.links if one not in troubled)
        return replace(scenario, trouble=replace(scenario.trouble, links=kept))
    graph = scenario.cluster.graph.copy()
    factor = WIDER if limits.kind == "full" else 1 / limits.cables[0].peak
    for src, dst, link in graph.edges(data=True):
        if frozenset((src, dst)) in cables:
            link |= {key: link[key] * factor for key in ("bandwidth", "shared_bandwidth") if key in link}
    return replace(scenario, cluster=replace(scenario.cluster, graph=graph))
