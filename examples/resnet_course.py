"""The ResNet course: naive, ring, the ring in buckets, and DDP; predicted, trained, and its questions answered.

    python examples/resnet_course.py [section.key=value ...]

It calibrates and trains in turns, so that prediction and measurement meet the same machine: about five minutes on two
cores.
"""

import sys
from pathlib import Path
from typing import Any

import ringlab

SCENARIO = Path(__file__).with_suffix(".toml")
EQUAL = 0.03  # of a step: less is no difference that a course should argue about


def answer_questions(rows: list[Any]) -> list[str]:
    """Return the answers to the course's questions, from the figures alone."""
    steps = {row.gradient_sync: row.step_s for row in rows}
    naive, ring, ranks = steps["naive"], steps["ring"], rows[0].world_size
    expected = compare_times("the ring", ring.predicted, "naive", naive.predicted)
    found = compare_times("the ring", ring.measured, "naive", naive.measured)
    quickest = min(steps, key=lambda name: float(steps[name].measured))
    bytes_naive, bytes_ring = ranks - 1, 2 * (ranks - 1) / ranks
    return [
        f"Is the ring faster here? Measured, {found}.",
        f"Did you expect it? Predicted, {expected}: on {ranks} ranks the busiest rank sends {bytes_naive:g} times the "
        f"gradients in naive and {bytes_ring:g} times in the ring.",
        f"Which way is the quickest? {quickest}.",
        f"Do all ways learn alike? Held out, right are {', '.join(f'{row.test_accuracy:.1%}' for row in rows)}.",
    ]


def compare_times(name: str, seconds: float, other: str, others: float) -> str:
    """Return which of two takes less time, and by how much.

    >>> compare_times("the ring", 1.0, "naive", 2.0), compare_times("the ring", 1.0, "naive", 1.01)
    ('a step with the ring takes 50 % less than with naive', 'a step takes as long with the ring as with naive')
    """
    gain = 1 - seconds / others
    if abs(gain) < EQUAL:
        return f"a step takes as long with {name} as with {other}"
    return f"a step with {name} takes {abs(gain):.0%} {'less' if gain > 0 else 'more'} than with {other}".replace(
        "%", " %"
    )


def main() -> None:
    answer = ringlab.load(SCENARIO, *sys.argv[1:]).compare(timeout=3600.0)
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
