"""Predict one GPU with its whole type left out: from its data sheet, and from the same job on other types."""

from collections.abc import Mapping, Sequence
from statistics import NormalDist

import numpy as np

from benchmarks.accuracy.judging import Judged, Score, score
from benchmarks.accuracy.series import Series
from benchmarks.studies.one_gpu_fit import fit_process, seen_rates
from planner.one_gpu import Alone, OneGpuRate, guess_rates, published, read_process

UNKNOWN = "unknown"


def judge_one_gpu(
    series: Sequence[Series], *, refit: bool = False, pinned: Mapping[str, float] | None = None
) -> dict[str, Score]:
    """Return the scores of ``data_sheet`` (unknown source) and of ``same_job`` (known on other types).

    The process has the shipped values. With ``refit``, it is fitted to the published rates of the other types, except
    the ``pinned`` values.
    """
    alone = [
        Alone(curve.job, curve.gpu, curve.source, curve.points[0].rate) for curve in series if curve.points[0].gpus == 1
    ]
    sheets, jobs = list[tuple[OneGpuRate, float]](), list[tuple[OneGpuRate, float]]()
    for name in sorted({row.gpu.name for row in alone}):
        inside = [row for row in alone if row.gpu.name == name]
        others = [row for row in published() if row.gpu.name != name]
        process = None
        if refit:
            fitted_to = [row for row in seen_rates() if row.gpu.name != name]
            process = fit_process(fitted_to, read_process(), pinned=pinned)
        hidden = guess_rates(others, [row._replace(source=UNKNOWN) for row in inside], process)
        sheets += zip(hidden, [row.rate for row in inside], strict=True)
        known = {_job(row) for row in alone if row.gpu.name != name}
        chosen = [row for row in inside if _job(row) in known]
        if chosen:
            seen = list(dict.fromkeys([*others, *(row for row in alone if row.gpu.name != name)]))
            jobs += zip(guess_rates(seen, chosen, process), [row.rate for row in chosen], strict=True)
    return {"data_sheet": _score(sheets), "same_job": _score(jobs)}


def _job(row: Alone) -> tuple[str, str, str]:
    return row.source, row.job.model.model, row.job.precision


def _score(pairs: Sequence[tuple[OneGpuRate, float]]) -> Score:
    rates, spreads = np.array([guessed for guessed, _ in pairs]).reshape(-1, 2).T
    widths = {coverage: np.exp(NormalDist().inv_cdf((1 + coverage) / 2) * spreads) for coverage in (0.5, 0.8, 0.9)}
    judged = Judged(
        keys={},
        measured=np.array([measured for _, measured in pairs]),
        predicted=rates,
        low={coverage: rates / width for coverage, width in widths.items()},
        high={coverage: rates * width for coverage, width in widths.items()},
    )
    return score(judged)
