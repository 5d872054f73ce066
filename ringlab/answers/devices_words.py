"""What a training on many devices comes to, in sentences below its table."""

import re
from collections.abc import Iterator, Sequence

from collectives.quoting import cut
from collectives.units import count
from ringlab.answers.devices_rows import Case, Refused

MOST_LISTED = 5  # values or numbers of devices in a sentence
NUMBERS = r"(?<![\w.])[0-9][0-9.,]*( [KMGT]?i?B)?"  # with their units, in which reasons may differ
NOTICED = 0.001  # of a step: what sharing links adds is said from here on
WORDS = {
    "sync": "exchanging gradients and parameters", "tensor": "collectives within layers (tensor)",
    "expert": "all_to_alls of experts", "pipeline": "waiting for other stages of the pipeline",
    "input": "loading of samples", "copies": "passes over gradients",
    "processes": "waiting for the other GPUs' processes, which share a host's cores",
    "stragglers": "waiting for the slowest device", "compute": "computing",
    "contention": "links that traffic of a step shares",
}  # fmt: skip


WITHOUT_EFFECT = {
    "training.parallelism.bucket_mb": ": buckets count where gradients travel in them beside backward (`ddp`, `zero1`, "
    "`zero2`, `zero_redundancy` with `overlap`)",
    "training.precision": ": the times of computing are given, and gradients travel in 32 bits unless `half_weights`",
}


OWN_WORK = (
    "What torch itself does for each operation on divided parameters ({form}) is not in the step: processors take "
    "longer by it, and GPUs whose kernels are short (docs/parallelism.md)."
)


def conclude(key: str | None, cases: Sequence[Case]) -> list[str]:
    """Return the sentences below the tables: what holds the training back, and what was left out.

    ``key`` is what a what-if varies, a case a value; None where nothing varies.
    """
    said = list[str]()
    rates = {tuple((row.devices, row.samples_per_s) for row in case.rows) for case in cases}
    same = len(cases) > 1 and len(rates) == 1
    if same:
        said.append(f"what {key} is changes no rate here{WITHOUT_EFFECT.get(key or '', '')}.")
    for case in cases[: 1 if same else None]:
        if not case.rows:
            continue
        last = case.rows[-1]
        where = f"With {key} = {cut(case.value)}, " if key and not same else ""
        on = f"{where}on {last.devices} device{'s' if last.devices > 1 else ''}"
        if last.bottleneck == "compute":
            said.append(f"{on} the step is {last.bottleneck_share:.0%} computing: nothing else holds it back.")
        else:
            gain = 1 / (1 - last.bottleneck_share)
            said.append(
                f"{on} what holds it back is {WORDS[last.bottleneck]}, {last.bottleneck_share:.0%} of the step: "
                f"without it {gain:.2f} times as fast."
            )
        if last.bottleneck in last.links_shared_within:
            said.append(f"{last.links_shared_within[last.bottleneck]}.")
        if last.parts["contention"] >= NOTICED * last.step_s:
            more = last.parts["contention"] / (last.step_s - last.parts["contention"])
            said += [
                f"{where}{link}, which makes the step {more:.1%} longer." for link in last.links_shared_between[:1]
            ]
    said[:0] = _left_out(key, cases)  # what is told first is the first to be left to --explain
    return [sentence[0].upper() + sentence[1:] for sentence in said]


def _left_out(key: str | None, cases: Sequence[Case]) -> Iterator[str]:
    """Yield what was left out, and of reasons that differ in numbers only the first, with whose it is."""
    kinds: dict[tuple[str, tuple[int, ...]], tuple[list[str], list[str]]] = {}
    for case in cases:
        reasons: dict[str, list[Refused]] = {}
        for one in case.refused:
            reasons.setdefault(re.sub(NUMBERS, "", one.reason), []).append(one)
        for kind, refused in reasons.items():
            devices = tuple(one.devices for one in refused)
            reasons_of, values = kinds.setdefault((kind, devices), ([], []))
            reasons_of += [one.reason for one in refused]
            values.append(case.value)
    for (_, devices), (reasons_of, values) in kinds.items():
        where = f" with {key} = {_listed(values)}" if key else ""
        on = count(devices[0], "device") if len(devices) == 1 else f"{_listed(devices)} devices"
        whose = ""
        if len(set(reasons_of)) > 1:
            first = f" with {key} = {cut(values[0])}" if len(values) > 1 else ""
            whose = f"; these are the figures of {count(devices[0], 'device')}{first}"
        yield f"Left out, {on}{where}: {reasons_of[0]}{whose}."


def _listed(items: Sequence[object]) -> str:
    """Return items in words, of many how many more there are.

    >>> _listed([1, 2, 4]), _listed(range(20))
    ('1, 2 and 4', '0, 1, 2, 3, 4 and 15 more')
    """
    shown = [cut(str(one)) for one in items[:MOST_LISTED]]
    last = f"{len(items) - MOST_LISTED} more" if len(items) > MOST_LISTED else shown.pop()
    return f"{', '.join(shown)} and {last}" if shown else last
