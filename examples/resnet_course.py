"""Train a ResNet with naive, ring, ring in buckets and DDP, and compare with the predictions.

    python examples/resnet_course.py [section.key=value ...]

Calibration and training alternate, so that both see the same state of the machine. This takes under two minutes on two
idle cores, and longer on busy ones.
"""

import sys
from pathlib import Path
from typing import Any

import ringlab
from ringlab.shared.progress import TerminalProgress

SCENARIO = Path(__file__).with_suffix(".toml")
EQUAL = 0.03  # of a step: less is no difference that a course should argue about


def answer_questions(rows: list[Any]) -> list[str]:
    """Return the answers to the course's questions, from the figures alone."""
    by_name, ranks = {row.gradient_sync: row for row in rows}, rows[0].world_size
    naive, ring = by_name["naive"], by_name["ring"]
    expected = compare_times("the ring", ring.step_s.predicted, "naive", naive.step_s.predicted)
    found = compare_times("the ring", ring.step_s.measured, "naive", naive.step_s.measured)
    as_expected = verdict(ring.step_s.predicted, naive.step_s.predicted) == verdict(
        ring.step_s.measured, naive.step_s.measured
    )
    passes_naive, passes_ring = 2 * (ranks - 1), 2 * (ranks - 1) / ranks  # the closed forms, docs/reference/costs.md
    share, saved = naive.sync_s.measured / naive.step_s.measured, 1 - passes_ring / passes_naive
    quickest = min(rows, key=lambda row: float(row.step_s.measured))
    errors = [abs(row.step_s.predicted / row.step_s.measured - 1) for row in rows]
    return [
        f"Is the ring faster here? Measured, {found}.",
        f"Did you expect it? {'Yes' if as_expected else 'No'}: predicted, {expected}.",
        f"Why? The gradients pass a link {times(passes_naive)} one after the other in naive, {times(passes_ring)} in "
        f"the ring, whose ranks send at once. Sync is {percent(share)} of naive's step, so that alone saves at most "
        f"{percent(share * saved)} of it.",
        f"Which is the fastest? {quickest.gradient_sync}, {quickest.step_s.measured * 1e3:.0f} ms per step.",
        f"How good was the prediction? Steps are {percent(min(errors))} to {percent(max(errors))} off.",
        f"Do all reach the same accuracy? Held out: {', '.join(percent(row.test_accuracy, 1) for row in rows)}.",
    ]


def times(number: float) -> str:
    """Return how often in words.

    >>> times(1), times(2), times(1.5)
    ('once', 'twice', '1.5 times')
    """
    return {1: "once", 2: "twice"}.get(number, f"{number:g} times")


def percent(share: float, digits: int = 0) -> str:
    """Return a share in percent.

    >>> percent(0.123), percent(0.9583, 1)
    ('12 %', '95.8 %')
    """
    return f"{100 * share:.{digits}f} %"


def compare_times(name: str, seconds: float, other: str, others: float) -> str:
    """Return which of two takes less time, and by how much.

    >>> compare_times("the ring", 1.0, "naive", 2.0), compare_times("the ring", 1.0, "naive", 1.01)
    ('a step with the ring takes 50 % less than with naive', 'a step takes as long with the ring as with naive')
    """
    gain, than = 1 - seconds / others, verdict(seconds, others)
    if than == "as long":
        return f"a step takes as long with {name} as with {other}"
    return f"a step with {name} takes {percent(abs(gain))} {than} than with {other}"


def verdict(seconds: float, others: float) -> str:
    """Return whether a step takes less or more time than another, or as long.

    >>> verdict(1.0, 2.0), verdict(2.0, 1.0), verdict(1.0, 1.01)
    ('less', 'more', 'as long')
    """
    gain = 1 - seconds / others
    return "as long" if abs(gain) < EQUAL else "less" if gain > 0 else "more"


def main() -> None:
    answer = ringlab.load(SCENARIO, *sys.argv[1:]).compare(timeout=3600.0, thorough=True, progress=TerminalProgress())
    print(f"{'gradient_sync':16} {'step predicted':>16} {'measured':>10} {'speed-up predicted':>20} {'measured':>10}")
    for row in answer.training:
        share = [each * row.world_size for each in (row.scaling_efficiency.predicted, row.scaling_efficiency.measured)]
        step = row.step_s
        print(
            f"{row.gradient_sync:16} {step.predicted * 1e3:13.0f} ms {step.measured * 1e3:7.0f} ms "
            f"{share[0]:20.2f} {share[1]:10.2f}"
        )
    print(*answer_questions(list(answer.training)), sep="\n")


if __name__ == "__main__":
    main()
