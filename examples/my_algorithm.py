"""A ring all-reduce for you to change.

ringlab check my_algorithm.py                 # is it correct for 1 to 33 ranks? if not: the first error
ringlab animate my_algorithm.py -o mine.html  # its messages and buffers, up to the first error
ringlab predict star8 --set 'collective.algorithms=["ring", "my_algorithm.py:my_ring"]'
"""

from collectives import algorithm, recv, recv_reduce, send


@algorithm("all_reduce")
def my_ring(rank, world_size):
    """Sum the data of all ranks on every rank: reduce around the ring once, then send the sums around once."""
    left, right = (rank - 1) % world_size, (rank + 1) % world_size
    for step in range(world_size - 1):
        yield send(right, (rank - 1 - step) % world_size), recv_reduce(left, (rank - 2 - step) % world_size)
    for step in range(world_size - 1):
        yield send(right, (rank - step) % world_size), recv(left, (rank - 1 - step) % world_size)
