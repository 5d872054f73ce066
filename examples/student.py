"""Four collectives for you to write.

ringlab check student.py  # shows your next mistake

Each function is the program of *one* rank. It is called once for every rank, with that rank's number. It yields steps,
which consist of these operations:

    send(peer, chunk)          send my chunk to rank `peer`
    recv(peer, chunk)          receive from rank `peer` and overwrite my chunk
    recv_reduce(peer, chunk)   receive from rank `peer` and add to my chunk

Every send needs a receive on the other rank. `yield send(...)` is a step that ends when the message has arrived. `yield
send(...), recv(...)` is a single step in which both happen at the same time. A send transfers the chunk as it was
before the step. `yield from other_program(...)` runs another program.

Ranks and chunks are numbered from 0. The right neighbor of a rank is `(rank + 1) % world_size`.
Replace each `yield from ()`, which is a program that does nothing. You find Ringlab's solutions in
`collectives/algorithms/naive.py` and `ring.py` of the repository, but try it yourself first.
"""

from collectives import algorithm, recv, recv_reduce, send  # noqa: F401 - all that you need


@algorithm("broadcast", name="student", chunks=1)
def broadcast(rank, world_size, root):
    """Copy the data of `root`, in chunk 0 (the whole buffer), to every rank.

    Let `root` send to the other ranks, one after the other. What does a rank do if it is the root, and what otherwise?
    `root` is not always 0.
    """
    yield from ()


@algorithm("reduce", name="student", chunks=1)
def reduce(rank, world_size, root):
    """Sum the data of all ranks, in chunk 0 (the whole buffer), on `root`.

    At the start, every rank has its own data. At the end, only the data of `root` matters. The sum must contain each
    rank's data exactly once.
    """
    yield from ()


@algorithm("all_reduce", name="student", chunks=1)
def all_reduce(rank, world_size):
    """Sum the data of all ranks, in chunk 0 (the whole buffer), on every rank.

    Use `yield from` to run `reduce` and then `broadcast`, both with rank 0 as the root. In total, rank 0 sends and
    receives 2 (world_size - 1) whole buffers, one after the other.
    """
    yield from ()


@algorithm("all_reduce", name="student_ring")
def ring_all_reduce(rank, world_size):
    """Sum the data of all ranks on every rank. Each rank only communicates with its two neighbors.

    The buffer is divided into `world_size` chunks. In every step, each rank sends one chunk to its right neighbor and
    receives another chunk from its left neighbor, at the same time.

    The first world_size - 1 steps use `recv_reduce`. Rank r starts by sending chunk r. Then it always sends the chunk
    to which it has just added data. Afterwards, each rank has one complete chunk: which one?

    The next world_size - 1 steps use `recv`, and the complete chunks travel once around the ring. In total, each rank
    sends 2 (world_size - 1) / world_size buffers.
    """
    yield from ()
