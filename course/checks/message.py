"""Checks of lesson 1: a message and what it costs."""

from types import ModuleType

from course.checks.exercise import ALPHA, BETA, Exercise, Shown, WrongAnswerError, expect_close

SIZES = 1 << 10, 1 << 16, 1 << 22


def measure(lesson: ModuleType) -> None:
    for nbytes in SIZES:
        seconds = lesson.measure(nbytes)  # which holds two readings of a clock
        expect_close(seconds, ALPHA + nbytes * BETA, f"measure({nbytes}), in virtual seconds one way,", within=0.02)


def fit(lesson: ModuleType) -> None:
    seconds = [3e-6 + nbytes * 4e-9 for nbytes in SIZES]
    found = lesson.fit(list(SIZES), seconds)
    if not isinstance(found, tuple) or len(found) != 2:
        raise WrongAnswerError(f"fit should return the two numbers alpha and beta and returns {found!r}")
    expect_close(found[1], 4e-9, "beta of points on the line 3 us + n * 4 ns")
    expect_close(found[0], 3e-6, "alpha of points on the line 3 us + n * 4 ns")


def half_size(lesson: ModuleType) -> None:
    expect_close(lesson.half_size(10e-6, 1e-9), 1e4, "half_size(10 us, 1 ns)")


EXERCISES = [
    Exercise("measure", measure, (2,), most_seconds=lambda p: 2.01 * sum(ALPHA + n * BETA for n in SIZES)),
    Exercise("fit", fit),
    Exercise("half_size", half_size),
]
PREDICTED = {
    "seconds of 1 KiB": ALPHA + 1024 * BETA,
    "seconds of 64 MiB": ALPHA + (64 << 20) * BETA,
    "bytes where both cost the same": ALPHA / BETA,
}
SHOWN = Shown(2)
