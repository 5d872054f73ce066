"""The published toy: both ranks print 1.4, real and simulated alike."""

import subprocess
import sys
from pathlib import Path

TOY = Path(__file__).parent.parent / "examples" / "toy.py"


def test_both_ranks_end_at_1_4_really_and_simulated():
    done = subprocess.run([sys.executable, TOY], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines() == [
        "real rank 0: 1.4",
        "real rank 1: 1.4",
        "simulated rank 0: 1.4",
        "simulated rank 1: 1.4",
    ]
