"""Checks of lesson 1: a message and what it costs."""

from types import ModuleType

import torch.distributed as dist

from course.checks.exercise import ALPHA, BETA, Exercise, Shown, WrongAnswerError, expect_close

SIZES = 1 << 10, 1 << 16, 1 << 22
LINE = "points on the line 3 us + n * 4 ns"
BETAS = {"alpha: the two are swapped": 3e-6, "the bandwidth: beta is seconds a byte, not bytes a second": 1 / 4e-9}
ALPHAS = {"the time of the first point, in which its bytes are still counted": 3e-6 + SIZES[0] * 4e-9}


def measure(lesson: ModuleType) -> None:
    found = [lesson.measure(nbytes) for nbytes in SIZES]  # each holds two readings of a clock
    for nbytes, seconds in reversed(list(zip(SIZES, found, strict=True))):
        mistakes = {
            "the whole round trip: halve it": 2 * (ALPHA + nbytes * BETA),
            "elements of 4 bytes: the dtype is to be uint8": ALPHA + 4 * nbytes * BETA,
            "an answer that is shorter than the message: all its bytes go back": ALPHA + (nbytes + 1) / 2 * BETA,
            "milliseconds": 1e3 * (ALPHA + nbytes * BETA),
        }
        what = f"rank {dist.get_rank()}: measure({nbytes}), in virtual seconds one way,"
        expect_close(seconds, ALPHA + nbytes * BETA, what, within=0.02, mistakes=mistakes)


def fit(lesson: ModuleType) -> None:
    seconds = [3e-6 + nbytes * 4e-9 for nbytes in SIZES]
    found = lesson.fit(list(SIZES), seconds)
    if not isinstance(found, tuple) or len(found) != 2:
        raise WrongAnswerError(f"fit should return the two numbers alpha and beta and returns {found!r}")
    expect_close(found[1], 4e-9, f"beta, the second number, of {LINE}", mistakes=BETAS)
    expect_close(found[0], 3e-6, f"alpha, the first number, of {LINE}", mistakes=ALPHAS)


def half_size(lesson: ModuleType) -> None:
    mistakes = {"beta / alpha": 1e-4, "bits: a message is measured in bytes": 8e4}
    expect_close(lesson.half_size(10e-6, 1e-9), 1e4, "half_size(10 us, 1 ns), in bytes,", mistakes=mistakes)


EXERCISES = [
    Exercise(
        "measure",
        measure,
        "torch.distributed.send and recv, time.perf_counter; what one way is, in the docstring",
        (2,),
        most_seconds=lambda p: 2.01 * sum(ALPHA + n * BETA for n in SIZES),
    ),
    Exercise(
        "fit",
        fit,
        "numpy.polyfit, which fits a line to points by least squares",
    ),
    Exercise(
        "half_size",
        half_size,
        "'Your turn': alpha + n * beta, its two terms",
    ),
]
PREDICTED = {
    "seconds of 1 KiB": ALPHA + 1024 * BETA,
    "seconds of 64 MiB": ALPHA + (64 << 20) * BETA,
    "bytes where both cost the same": ALPHA / BETA,
}
SHOWN = Shown(2)
