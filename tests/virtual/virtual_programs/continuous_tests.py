"""A test class of torch whose processes serve all of its tests, and get their tasks from queues."""

import unittest

import torch
import torch.distributed as dist
from torch.testing._internal.common_distributed import MultiProcContinuousTest


class SumTest(MultiProcContinuousTest):
    world_size = 2

    @classmethod
    def backend_str(cls):
        return "gloo"

    def test_sum(self):
        x = torch.ones(1)
        dist.all_reduce(x)
        self.assertEqual(x.item(), 2)

    def test_rank(self):
        self.assertEqual(dist.get_rank(), self.rank)


if __name__ == "__main__":
    unittest.main()  # torch's run_tests writes a file instead of printing where CI is set
