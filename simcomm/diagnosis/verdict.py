"""All of it: facts of files, the machine, tables beside it, causes, and the verdict first."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any, Literal

from simcomm.diagnosis.evidence.causes import SLOW, Cause, rank_causes
from simcomm.diagnosis.evidence.expectation import DiagnosedCase, Factor, compare_tables
from simcomm.diagnosis.evidence.facts import (
    BenchedRow,
    Facts,
    Milestone,
    RankTimeout,
    RunTrace,
    StartedTest,
    Unexplained,
)
from simcomm.diagnosis.evidence.machine import describe_machine
from simcomm.diagnosis.reading import read_facts
from simcomm.diagnosis.rules import RULES

Verdict = Literal["normal", "slow", "hang", "unknown"]
HEADLINES = {
    "normal": "Normal",
    "slow": "Slower than it should be",
    "hang": "It stands still or does not start",
    "unknown": "Not known from these files",
}
SURE = 0.6  # strength of a cause that by itself says that something is wrong
WORTH = 1.2  # predicted gain of a cause that is taken for the reason of a slowness within the interval
OWN_FACTOR = (
    "slow-host",
    "slow-pair",
    "slow-link",
    "rate-collapses",
    "data-loading",
    "slow-rank",
    "late-rank",
    "exposed-collectives",
    "idle-gpu",
    "uneven-steps",
    "packet-loss",
    "pcie-degraded",
    "slow-collectives",
    "slow-bench",
    "no-mpi",
)


@dataclass(frozen=True)
class Diagnosis:
    """The verdict, by how much it is slower than it should be, and what explains it, the likeliest first."""

    verdict: Verdict
    factor: Factor | None
    causes: tuple[Cause, ...]
    case: DiagnosedCase
    reason: str  # why the verdict is what it is

    @property
    def headline(self) -> str:
        """The verdict and its reason as a line."""
        return f"{HEADLINES[self.verdict]}: {self.reason}"


def diagnose_files(
    paths: Iterable[Path | str], given: Mapping[str, Any] | None = None, *, hangs: bool = False
) -> Diagnosis:
    """Return what the files say; ``hangs`` where the user says that it stands still.

    Raises InputError for a file that is refused, and for keys that cannot be.
    """
    return diagnose_facts(read_facts(paths), given, hangs=hangs)


def diagnose_facts(facts: Facts, given: Mapping[str, Any] | None = None, *, hangs: bool = False) -> Diagnosis:
    """Return the diagnosis of facts; ``given`` are keys of the machine that the user says."""
    machine = describe_machine(facts, given)
    return decide(DiagnosedCase(facts, machine, compare_tables(facts, machine), hangs))


def decide(case: DiagnosedCase) -> Diagnosis:
    """Return the verdict of a case with its causes."""
    found = [cause for rule in RULES for cause in rule(case)]
    factor = case.worst.factor if case.worst else None
    causes = rank_causes(found, factor.value if factor else None)
    hangs = [cause for cause in causes if cause.is_hang]
    if hangs or case.hangs or _is_stuck(case):
        ordered = (*hangs, *(cause for cause in causes if not cause.is_hang and _may_stop(cause)))
        reason = hangs[0].text if hangs else "it stands still, and the files do not say why"
        return Diagnosis("hang", None, tuple(sorted(ordered, key=lambda one: -one.strength)), case, reason)
    verdict, reason = _judge(case, factor, causes)
    return Diagnosis(verdict, factor, _supported(verdict, causes, factor), case, reason)


def _may_stop(cause: Cause) -> bool:
    return cause.name in ("acs-iommu", "no-mpi", "p2p-disabled", "no-gpudirect")


def _is_stuck(case: DiagnosedCase) -> bool:
    """Return whether something began and did not end, though no rule says why."""
    facts = case.facts
    begun = facts.of(StartedTest) and any(one.name == "Init COMPLETE" for one in facts.of(Milestone))
    return bool(facts.of(RankTimeout)) or bool(begun and not case.comparisons)


def _judge(case: DiagnosedCase, factor: Factor | None, causes: tuple[Cause, ...]) -> tuple[Verdict, str]:
    """Return whether it is slow: by what was measured, by what a cause would take, or by what the files show alone."""
    own = next((cause for cause in causes if _stands_alone(cause, factor)), None)
    if factor is not None:
        if factor.low > 1:
            return (
                "slow",
                f"{factor.value:.2g} times slower than this machine should be ({factor.low:.2g} to {factor.high:.2g})",
            )
        near = next(
            (
                one
                for one in causes
                if one.strength >= SURE and (one.gain or 0) >= WORTH and factor.value >= sqrt(one.gain or 1)
            ),
            None,
        )
        if near is not None:
            return "slow", (
                f"{factor.value:.2g} times slower than this machine should be, which by itself would be within the "
                f"interval ({factor.low:.2g} to {factor.high:.2g}), and as slow as what the files show makes it"
            )
        if own is None and factor.high < 1:
            return "normal", (
                f"{1 / factor.value:.2g} times faster than the machine that the files describe could be: they leave "
                "something out, as NVLink; give --system or --set"
            )
        if own is None:
            return (
                "normal",
                f"{factor.value:.2g} times the predicted time, within {factor.low:.2g} to {factor.high:.2g}",
            )
    if own is not None:
        return "slow", own.text
    sure = next((one for one in causes if one.strength >= SURE and (one.gain is None or one.gain >= WORTH)), None)
    if sure is not None:
        return "slow", "the files show it, without a measured table"
    if case.facts.of(BenchedRow):
        return "normal", "collectives take what the calibration of this machine says"
    has_trace = any(trace.trace.spans or len(trace.trace.messages) for trace in case.facts.of(RunTrace))
    if has_trace or case.profiled_step is not None:
        return "normal", "no rank, link or phase stands out"
    one = next(iter(case.facts.of(Unexplained)), None)
    if one is not None:
        raised = f" ({one.frame})" * bool(one.frame)
        return "unknown", f"it says {one.place.text!r}{raised}, of which nothing is known here"
    return "unknown", case.machine.missing or "nothing was measured; give the output of nccl-tests"


def _stands_alone(cause: Cause, factor: Factor | None) -> bool:
    """Return whether a cause says by itself that it is slow: but what a NIC counted once not of a fast run."""
    is_fast = factor is not None and factor.value <= SLOW
    if cause.name == "packet-loss" and is_fast:
        return False
    return cause.name in OWN_FACTOR and (cause.gain or 2.0) > SLOW


def _supported(verdict: Verdict, causes: tuple[Cause, ...], factor: Factor | None) -> tuple[Cause, ...]:
    """Return the causes that go with a verdict: none of a normal run."""
    if verdict == "normal":
        return ()
    return tuple(cause for cause in causes if cause.weight(factor.value if factor else None) > 0.1)
