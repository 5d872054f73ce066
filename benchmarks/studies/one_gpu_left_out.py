"""One GPU predicted with its whole type left out: from its data sheet, and from the same job on other types."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.studies.one_gpu_fit import fit_process, seen_rates
from simcomm.scaling.descriptions import Series
from simcomm.scaling.one_gpu import Alone, Rate, guess_rates, published, read_process

UNKNOWN = "unknown"


@dataclass(frozen=True)
class OneGpuScore:
    """Errors |predicted / measured - 1| of rates of one GPU; None where there is none."""

    n: int
    median: float | None
    p90: float | None
    within15: float | None
    coverage50: float | None
    coverage80: float | None
    coverage90: float | None


def judge_one_gpu(
    series: Sequence[Series], *, refit: bool = False, pinned: Mapping[str, float] | None = None
) -> dict[str, OneGpuScore]:
    """Return the scores of ``data_sheet``, whose source is not known, and of ``same_job``, known on other types.

    The process that guesses has the shipped values; with ``refit`` those that are fitted to the project's own rates of
    the other types, of which ``pinned`` ones keep theirs.
    """
    asked = [Alone(one.job, one.gpu, one.source, one.points[0].rate) for one in series if one.points[0].gpus == 1]
    sheets, jobs = list[tuple[Rate, float]](), list[tuple[Rate, float]]()
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


def _score(pairs: Sequence[tuple[Rate, float]]) -> OneGpuScore:
    if not pairs:
        return OneGpuScore(0, None, None, None, None, None, None)
    sizes = np.array([abs(guessed.rate / measured - 1) for guessed, measured in pairs])
    held = [
        float(np.mean([low <= measured <= high for guessed, measured in pairs
                       for low, high in [guessed.interval(coverage)]]))
        for coverage in (0.5, 0.8, 0.9)
    ]  # fmt: skip
    return OneGpuScore(
        len(pairs), float(np.median(sizes)), float(np.quantile(sizes, 0.9)), float(np.mean(sizes <= 0.15)), *held
    )
