"""Trainings on virtual ranks with ``--compute measured`` beside the same on real gloo ranks of this machine.

    python benchmarks/virtual_on_gloo.py [--ranks 2] [--rounds 4] [--steps 40] [-o FILE]

DDP and FSDP of a perceptron of 2.1 million parameters, and of a transformer of 2.4, which was held out until all else
was chosen (``virtual_gloo/training.py``). In each round the real ranks
train first or the virtual ones, in turn. A step is what passes between the ends of an optimizer's steps: of real ranks
the median by their clocks, of virtual ones that of the replay by the hops of a calibration made at the beginning. The
ratio is the median over the rounds of virtual over real, with the least and the largest.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import simcomm
from collectives.call import CollectiveCall
from collectives.catalogue import find_algorithm
from collectives.output_files import write_text
from collectives.records.calibration import Calibration
from collectives.records.environment import describe_measurement
from realcomm.calibration.calibration import calibrate
from replay.recording_builder import STEP
from replay.simulation.figures import mark_figures
from replay.simulation.replay import replay
from virtual.hosting.host import VirtualHost
from virtual.options import VirtualOptions
from virtual.process.programs import UserProgram

FOLDER = Path(__file__).parent / "virtual_gloo"
RESULTS = Path(__file__).parent / "results" / "virtual_on_gloo.json"
TRAININGS = tuple((strategy, model) for model in ("perceptron", "transformer") for strategy in ("ddp", "fsdp"))
Training = tuple[str, str]  # strategy and model
TIMEOUT_S = 120
ELEMENTS = 2_100_000  # of the gradients, about


def words(training: Training, steps: int) -> tuple[str, ...]:
    """Return the arguments of the program."""
    strategy, model = training
    return strategy, str(steps), model


def train_really(training: Training, ranks: int, steps: int) -> float:
    """Return the seconds of a step on real ranks, the median of the first rank's."""
    asked = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    asked += [str(FOLDER / "timed.py"), str(FOLDER / "training.py"), *words(training, steps)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(asked, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    return float(done.stdout.split()[-1])


def train_virtually(
    host: VirtualHost, training: Training, ranks: int, steps: int, known: Calibration
) -> tuple[float, float]:
    """Return the seconds of a step on virtual ranks, and those that a rank computes in it."""
    program = UserProgram(str(FOLDER / "training.py"), words(training, steps))
    cluster = simcomm.this_machine(ranks)
    asked = VirtualOptions(program, ranks, cluster, compute="measured", timing="recorded")
    recording = host.run(asked, timeout=TIMEOUT_S).recordings[0]
    assert recording is not None, "the program communicates"
    run = replay(recording, cluster, calibration=known)
    seconds = next(mark.mean_s for mark in mark_figures(run) if mark.name == STEP)
    return seconds, float(recording.computed().mean()) / steps


def measure(ranks: int, rounds: int, steps: int) -> list[dict[str, Any]]:
    """Return a row for each training."""
    known = calibrate(ranks, calls=[CollectiveCall(find_algorithm("ring", "all_reduce"), ELEMENTS)], all_sizes=False)
    real: dict[Training, list[float]] = {one: [] for one in TRAININGS}
    found: dict[Training, list[tuple[float, float]]] = {one: [] for one in TRAININGS}
    with VirtualHost(("torch._dynamo", "torch.distributed.fsdp")) as host:
        for number in range(rounds):
            for training in TRAININGS:
                if number % 2:
                    found[training].append(train_virtually(host, training, ranks, steps, known))
                real[training].append(train_really(training, ranks, steps))
                if not number % 2:
                    found[training].append(train_virtually(host, training, ranks, steps, known))
    rows = []
    for training in TRAININGS:
        ratios = [virtual / one for (virtual, _), one in zip(found[training], real[training], strict=True)]
        row = {
            "strategy": training[0],
            "model": training[1],
            "ranks": ranks,
            "real_s": median(real[training]),
            "virtual_s": median(step for step, _ in found[training]),
            "computed_s": median(computed for _, computed in found[training]),
            "ratio": median(ratios),
            "ratio_low": min(ratios),
            "ratio_high": max(ratios),
        }
        rows.append(row)
    return rows


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("-o", type=Path, default=RESULTS)
    asked = parser.parse_args()
    rows = measure(asked.ranks, asked.rounds, asked.steps)
    for row in rows:
        print(row, flush=True)
    write_text(asked.o, json.dumps({"environment": describe_measurement(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
