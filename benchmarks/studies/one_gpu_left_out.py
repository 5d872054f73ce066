"""One GPU predicted with its whole type left out: from its data sheet, and from the same job on other types."""

from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.accuracy.judging import Judged, Score, score
from benchmarks.accuracy.series import Series
from benchmarks.studies.one_gpu_fit import fit_process, seen_rates
from planner.one_gpu import Alone, OneGpuRate, guess_rates, published, read_process

UNKNOWN = "unknown"


def judge_one_gpu(
    series: Sequence[Series], *, refit: bool = False, pinned: Mapping[str, float] | None = None
) -> dict[str, Score]:
    """Return the scores of ``data_sheet``, whose source is not known, and of ``same_job``, known on other types.

    The process that guesses has the shipped values; with ``refit`` those that are fitted to the project's own rates of
    the other types, of which ``pinned`` ones keep theirs.
    """
    asked = [Alone(one.job, one.gpu, one.source, one.points[0].rate) for one in series if one.points[0].gpus == 1]
    sheets, jobs = list[tuple[OneGpuRate, float]](), list[tuple[OneGpuRate, float]]()
    for name in sorted({one.gpu.name for one in asked}):
        inside = [one for one in asked if one.gpu.name == name]
        others = [one for one in published() if one.gpu.name != name]
        process = None
        if refit:
            fitted_to = [one for one in seen_rates() if one.gpu.name != name]
            process = fit_process(fitted_to, read_process(), pinned=pinned)
        hidden = guess_rates(others, [one._replace(source=UNKNOWN) for one in inside], process)
        sheets += zip(hidden, [one.rate for one in inside], strict=True)
        known = {_job(one) for one in asked if one.gpu.name != name}
        chosen = [one for one in inside if _job(one) in known]
        if chosen:
            seen = list(dict.fromkeys([*others, *(one for one in asked if one.gpu.name != name)]))
            jobs += zip(guess_rates(seen, chosen, process), [one.rate for one in chosen], strict=True)
    return {"data_sheet": _score(sheets), "same_job": _score(jobs)}


def _job(one: Alone) -> tuple[str, str, str]:
    return one.source, one.job.model.model, one.job.precision


def _score(pairs: Sequence[tuple[OneGpuRate, float]]) -> Score:
    ends = {coverage: [guessed.interval(coverage) for guessed, _ in pairs] for coverage in (0.5, 0.8, 0.9)}
    judged = Judged(
        keys={},
        measured=np.array([measured for _, measured in pairs]),
        predicted=np.array([guessed.rate for guessed, _ in pairs]),
        low={coverage: np.array([low for low, _ in found]) for coverage, found in ends.items()},
        high={coverage: np.array([high for _, high in found]) for coverage, found in ends.items()},
    )
    return score(judged)
