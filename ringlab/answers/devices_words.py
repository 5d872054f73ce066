"""What a training on many devices comes to, in sentences below its table."""

from collections.abc import Sequence

from collectives.quoting import cut
from collectives.units import count
from ringlab.answers.devices_rows import Case

NOTICED = 0.001  # of a step: what sharing links adds is said from here on
WORDS = {
    "sync": "exchanging gradients and parameters", "tensor": "collectives within layers (tensor)",
    "expert": "all_to_alls of experts", "pipeline": "waiting for other stages of the pipeline",
    "input": "loading of samples", "copies": "passes over gradients",
    "stragglers": "waiting for the slowest device", "compute": "computing",
    "contention": "links that traffic of a step shares",
}  # fmt: skip


WITHOUT_EFFECT = {
    "training.parallelism.bucket_mb": ": buckets count where gradients travel while backward goes on (`overlap`)",
    "training.precision": ": the times of computing are given, and gradients travel in 32 bits unless `half_weights`",
}


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
    reasons = dict.fromkeys((one.devices, one.reason) for case in cases for one in case.refused)
    said += [f"Left out, {count(devices, 'device')}: {reason}." for devices, reason in reasons]
    return [sentence[0].upper() + sentence[1:] for sentence in said]
