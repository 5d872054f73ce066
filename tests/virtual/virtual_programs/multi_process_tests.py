"""Tests in torch's style that start their own processes: one passes, one is skipped, one fails."""

import sys
import unittest

import torch
import torch.distributed as dist
from torch.testing._internal.common_distributed import TEST_SKIPS, MultiProcessTestCase


class SumTest(MultiProcessTestCase):
    @property
    def world_size(self):
        return 2

    def setUp(self):
        super().setUp()
        self._spawn_processes()

    def _join(self):
        store = dist.FileStore(self.file_name, self.world_size)
        dist.init_process_group("gloo", store=store, rank=self.rank, world_size=self.world_size)

    def test_sum(self):
        self._join()
        x = torch.ones(1)
        dist.all_reduce(x)
        self.assertEqual(x.item(), 2)

    def test_skipped(self):
        sys.exit(TEST_SKIPS["no_cuda"].exit_code)

    def test_wrong(self):
        self._join()
        x = torch.ones(1)
        dist.all_reduce(x)
        self.assertEqual(x.item(), 3)


if __name__ == "__main__":
    unittest.main()  # torch's run_tests writes a file instead of printing where CI is set
