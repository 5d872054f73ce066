"""Scratch whose content is used before anything was put there."""

from collectives import algorithm, reduce


@algorithm("all_reduce", chunks=1, scratch=1)
def wrong(rank, world_size):
    yield reduce(1, into=0)
