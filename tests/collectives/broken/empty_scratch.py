"""A program that sends scratch before anything was written to it."""

from collectives import algorithm, reduce


@algorithm("all_reduce", chunks=1, scratch=1)
def wrong(rank, world_size):
    yield reduce(1, into=0)
