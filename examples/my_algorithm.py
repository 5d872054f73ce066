"""An all-reduce of your own to begin with: the ring, which you change, check, predict and watch.

ringlab check my_algorithm.py                          # is it right, for 1 to 33 ranks? if not: where it goes wrong
ringlab animate my_algorithm.py -o mine.html           # its messages and buffers, also up to where it goes wrong
ringlab predict star8 --set 'collective.algorithms=["ring", "my_algorithm.py:my_ring"]'
"""

from collectives import algorithm, recv, recv_reduce, send


@algorithm("all_reduce")
def my_ring(rank, world_size):
    """Every rank holds the sum: around the ring once to add up, and once more to hand the sums on."""
    left, right = (rank - 1) % world_size, (rank + 1) % world_size
    for step in range(world_size - 1):
        yield send(right, (rank - 1 - step) % world_size), recv_reduce(left, (rank - 2 - step) % world_size)
    for step in range(world_size - 1):
        yield send(right, (rank - step) % world_size), recv(left, (rank - 1 - step) % world_size)
