"""Run a program, and print the median seconds between the ends of its optimizer steps on rank 0."""

import os
import runpy
import sys
import time
from itertools import pairwise
from statistics import median
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook

WARM_UP = 5  # steps that are not counted


def main() -> None:
    """Run the program named by the arguments."""
    ends: list[float] = []

    def note(*_: Any) -> None:
        ends.append(time.perf_counter())

    register_optimizer_step_post_hook(note)
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
    if os.environ["RANK"] == "0":
        print(median(after - before for before, after in pairwise(ends[WARM_UP:])), flush=True)


if __name__ == "__main__":
    main()
