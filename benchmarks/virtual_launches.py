"""Compare training steps that wait for the GPU's host, on a virtual rank, with measured steps.

    python benchmarks/virtual_launches.py [--models gpt2 resnet50 ...] [-o FILE]

``virtual_gpu/step.py`` runs eager steps of ``results/gpu_steps.json`` (measured on an H200) without data, three times:
with a host that is always ahead, with a host that launches an operator in 25 us, and with a host so slow that the time
counts the operators. The launch time of a model is measured in forward and backward of its smallest batch, if the
device needs less than two thirds of the measured time. Each step is also predicted with the median launch time of the
other models.
"""

import argparse
import json
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from collectives.output_files import write_text
from collectives.records.environment import describe_measurement
from simcomm import star
from virtual.hosting.host import VirtualHost
from virtual.options import LAUNCH_S, VirtualOptions
from virtual.process.programs import UserProgram

ABOUT = {"schema_version": 1, "kind": "benchmark"}
RESULTS = Path(__file__).parent / "results" / "virtual_launches.json"
MEASURED = RESULTS.with_name("gpu_steps.json")
PROGRAM = Path(__file__).parent / "virtual_gpu" / "step.py"
GPU = "H200 SXM"
CASES = (("gpt2", 1), ("gpt2", 8), ("gpt2-medium", 1), ("gpt2-xl", 1), ("bert-large-128", 32), ("resnet50", 32))
PHASES = ("forward_s", "backward_s", "optimizer_s")
COUNTING_S = 1.0  # launch time that dominates all other times
BUSY = 2 / 3  # share of a measured phase; a device that needs more does not wait for its host
TIMEOUT_S = 1800


class Phase(NamedTuple):
    """Forward, backward or the optimizer step: measured seconds, seconds of the device alone, number of operators."""

    measured: float
    device: float
    operators: float

    @property
    def waits(self) -> bool:
        """Whether the device waits for its host."""
        return self.device < BUSY * self.measured


def run_cases(host: VirtualHost, cases: list[dict[str, Any]], launch_s: float) -> list[list[float]]:
    """Return the seconds of each phase for each case."""
    words = [str(case[key]) for case in cases for key in ("model", "batch_size", "precision")]
    lines: list[str] = []
    program = UserProgram(str(PROGRAM), tuple(words))
    options = VirtualOptions(
        program, 1, star(1, "10 Gbit/s", "5 us"), timing="recorded", compute=GPU, gpu=True, fake=True, launch_s=launch_s
    )
    finished = host.run(options, timeout=TIMEOUT_S, show=lambda stream, text: lines.append(text))
    assert finished.outcome.status == 0, finished.outcome.findings
    rows = [line.split()[2:] for line in "".join(lines).splitlines()]
    return [[*map(float, words)] for words in rows if len(words) == len(PHASES) and words[0][0].isdigit()]


def predict(phases: list[Phase], launch_s: float) -> float:
    """Return the seconds of a step with a given launch time per operator."""
    return sum(max(phase.device, phase.operators * launch_s) for phase in phases)


def main() -> None:
    """Run and compare all cases, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=sorted({name for name, _ in CASES}))
    parser.add_argument("-o", type=Path, default=RESULTS)
    options = parser.parse_args()
    wanted = [case for case in CASES if case[0] in options.models]
    steps = json.loads(MEASURED.read_text(encoding="utf-8"))["steps"]
    cases = [step for step in steps if not step["compiled"] and step["precision"] == "bf16"
             and (step["model"], step["batch_size"]) in wanted]  # fmt: skip
    with VirtualHost() as host:
        ahead, launched, counted = (run_cases(host, cases, seconds) for seconds in (0.0, LAUNCH_S, COUNTING_S))
    phases = [
        [Phase(case[name], *both) for name, *both in zip(PHASES, *figures, strict=True)]
        for case, *figures in zip(cases, ahead, counted, strict=True)
    ]
    least = {name: min(case["batch_size"] for case in cases if case["model"] == name) for name in options.models}
    rows = []
    for case, phases_of_case, with_host in zip(cases, phases, launched, strict=True):
        others = [
            phase.measured / phase.operators
            for other, phases_of_other in zip(cases, phases, strict=True)
            for phase in phases_of_other[:2]
            if other["model"] != case["model"] and other["batch_size"] == least[other["model"]] and phase.waits
        ]
        unseen = median(others) if others else None
        row = {
            "model": case["model"],
            "batch_size": case["batch_size"],
            "measured_s": case["step_s"],
            "ahead_s": sum(phase.device for phase in phases_of_case),
            "launched_s": sum(with_host),
            "operators": round(sum(phase.operators for phase in phases_of_case)),
            "launch_s": [phase.measured / phase.operators for phase in phases_of_case[:2] if phase.waits],
            "unseen_launch_s": unseen,
            "unseen_s": None if unseen is None else predict(phases_of_case, unseen),
        }
        rows.append(row)
        print(row, flush=True)
    answer = {**ABOUT, "environment": describe_measurement(), "gpu": GPU, "launch_s": LAUNCH_S, "rows": rows}
    write_text(options.o, json.dumps(answer, indent=1) + "\n")


if __name__ == "__main__":
    main()
