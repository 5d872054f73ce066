"""One of torch's own tests of process groups as a program: each rank is what a process of the test would be.

Says PASSED or SKIPPED with its reason; what fails raises.
"""

import os
import sys
import unittest

import torch.distributed as dist
from torch.testing._internal.common_distributed import TEST_SKIPS
from torch.testing._internal.common_utils import set_rng_seed
from torch.testing._internal.distributed import distributed_test as tests

MEANS = {skip.exit_code: skip.message for skip in TEST_SKIPS.values()}


class OneTest(tests.TestDistBackend, tests.DistributedTest._DistTestBase):
    """The tests as they are; what starts processes and reports over pipes is left out."""

    init_method = "env://"

    def _barrier(self, *args, **kwargs):
        dist.barrier()

    def run_test(self, name, pipe):
        set_rng_seed()  # as torch's does, by which all ranks have the same data
        getattr(self, name)()


def main(name):
    tests.PROFILING_SUPPORTED_BACKENDS.clear()  # events of the profiler have a backend's own names
    if os.environ["RANK"] == "0":
        tests.initialize_temp_directories()
    try:
        OneTest._run(int(os.environ["RANK"]), name, "", None)
    except unittest.SkipTest as skip:
        print("SKIPPED", skip)
    except SystemExit as end:
        print("PASSED" if not end.code else f"SKIPPED {MEANS.get(end.code, end.code)}")


if __name__ == "__main__":
    main(sys.argv[1])
