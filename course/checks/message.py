"""Checks of lesson 1: a message and its cost."""

from types import ModuleType

import torch.distributed as dist

from course.checks.exercise import (
    ALPHA,
    BETA,
    POINT_TO_POINT,
    Exercise,
    Predicted,
    Shown,
    WrongAnswerError,
    expect_close,
    measuring,
)

SIZES = 1 << 10, 1 << 16, 1 << 22
BETAS = {"alpha: the two are swapped": 3e-6, "the bandwidth: beta is seconds per byte, not bytes per second": 1 / 4e-9}
ALPHAS = {"the time of the first point, which includes the time of its bytes": 3e-6 + SIZES[0] * 4e-9}


@Exercise(
    "torch.distributed.send and recv, time.perf_counter; what one way means, in the docstring",
    (2,),
    calls=POINT_TO_POINT | {"barrier"},
    least_bytes=lambda p: max(SIZES),
    hint="send all nbytes there and back, and measure the time of the round trip",
)
def measure(lesson: ModuleType) -> None:
    timings = []  # measure all before checking, because each call reads the clock twice
    for nbytes in SIZES:
        with measuring(lesson):
            timings.append(lesson.measure(nbytes))
    for nbytes, seconds in reversed(list(zip(SIZES, timings, strict=True))):
        mistakes = {
            "the whole round trip: halve it": 2 * (ALPHA + nbytes * BETA),
            "elements of 4 bytes: the dtype must be uint8": ALPHA + 4 * nbytes * BETA,
            "an answer shorter than the message: send all its bytes back": ALPHA + (nbytes + 1) / 2 * BETA,
            "milliseconds": 1e3 * (ALPHA + nbytes * BETA),
        }
        call_text = f"rank {dist.get_rank()}: measure({nbytes}), in virtual seconds one way,"
        expect_close(seconds, ALPHA + nbytes * BETA, call_text, within=0.02, mistakes=mistakes)


@Exercise("numpy.polyfit, which fits a line to points by least squares")
def fit(lesson: ModuleType) -> None:
    for alpha, beta, sizes in ((3e-6, 4e-9, SIZES), (20e-6, 1e-9, (100, 2000, 30_000, 400_000))):
        parameters = lesson.fit(list(sizes), [alpha + nbytes * beta for nbytes in sizes])
        if not isinstance(parameters, (tuple, list)) or len(parameters) != 2:
            raise WrongAnswerError(f"fit must return the two numbers alpha and beta, not {parameters!r}")
        line = f"points on the line {alpha * 1e6:g} us + nbytes * {beta * 1e9:g} ns"
        is_first = sizes is SIZES
        expect_close(parameters[1], beta, f"beta, the second number, of {line}", mistakes=BETAS if is_first else None)
        expect_close(parameters[0], alpha, f"alpha, the first number, of {line}", mistakes=ALPHAS if is_first else None)


@Exercise("'Your turn': the two terms of alpha + n * beta")
def half_size(lesson: ModuleType) -> None:
    for alpha, beta in ((10e-6, 1e-9), (2e-6, 4e-9)):
        size = alpha / beta
        mistakes = {"beta / alpha": 1 / size, "bits: the size of a message is in bytes": 8 * size}
        call_text = f"half_size({alpha * 1e6:g} us, {beta * 1e9:g} ns), in bytes,"
        expect_close(lesson.half_size(alpha, beta), size, call_text, mistakes=mistakes)


def predicted() -> dict[str, Predicted]:
    return {
        "seconds of 1 KiB": Predicted(
            ALPHA + 1024 * BETA, "The latency takes 10 us, and 1,024 bytes at 1.25 GB/s take only 0.8 us more."
        ),
        "seconds of 64 MiB": Predicted(
            ALPHA + (64 << 20) * BETA,
            "64 MiB at 1.25 GB/s (10 Gbit/s) take 54 ms; the latency of 10 us does not count.",
        ),
        "bytes where both cost the same": Predicted(
            ALPHA / BETA, "alpha = n * beta, so n is the latency times the bandwidth: 10 us * 1.25 GB/s."
        ),
    }


SHOWN = Shown(2)
