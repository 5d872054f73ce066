"""Four collectives to fill in. What is still wrong says

ringlab check student.py

Each function is the program of *one* rank: it is called once for every rank, with that rank's number. It yields
steps. What a step may hold:

    send(peer, chunk)          send my chunk to rank `peer`
    recv(peer, chunk)          receive from rank `peer` and overwrite my chunk
    recv_reduce(peer, chunk)   receive from rank `peer` and add to my chunk

Every send needs a receive at the other end; a message arrives when both are there. `yield send(...)` is a step of its
own and ends when the message has arrived. `yield send(...), recv(...)` is one step in which both happen at once; a send
carries the chunk as it was before the step. `yield from other_program(...)` runs another program here.

Ranks and chunks count from 0, and `%` brings you round: the right neighbour is `(rank + 1) % world_size`.
Replace each `yield from ()`, which is a program that does nothing. The library's own answers are in
`collectives/algorithms/naive.py` and `ring.py` of the repository; try first.
"""

from collectives import algorithm, recv, recv_reduce, send  # noqa: F401 - all that you need


@algorithm("broadcast", name="student", chunks=1)
def broadcast(rank, world_size, root):
    """Copy the data of `root`, in chunk 0 (the whole buffer), to every rank.

    Let `root` send to the others, one after the other. Is `rank` the root, or one of the others? `root` is not always
    0.
    """
    yield from ()


@algorithm("reduce", name="student", chunks=1)
def reduce(rank, world_size, root):
    """Sum the data of all ranks, in chunk 0 (the whole buffer), on `root`.

    At the start every rank holds data of its own. What the others hold at the end does not matter. Each contribution
    must be in the sum exactly once.
    """
    yield from ()


@algorithm("all_reduce", name="student", chunks=1)
def all_reduce(rank, world_size):
    """Sum the data of all ranks, in chunk 0 (the whole buffer), on every rank.

    `yield from` `reduce` and then `broadcast`, both with rank 0 as the root. Rank 0 then sends and receives
    2 (world_size - 1) whole buffers, one after the other.
    """
    yield from ()


@algorithm("all_reduce", name="student_ring")
def ring_all_reduce(rank, world_size):
    """Sum the data of all ranks on every rank, each rank talking to its two neighbours only.

    The buffer is cut into `world_size` chunks. In every step each rank sends one chunk to its right neighbour and
    receives another from its left, at once.
    First come world_size - 1 steps of `recv_reduce`: rank r begins by sending chunk r, and then always sends the chunk
    that it has just added to. Afterwards each rank holds one complete chunk: which one?
    Then come world_size - 1 steps of `recv`, in which the complete chunks travel once round the ring.
    Each rank sends 2 (world_size - 1) / world_size buffers in all, however many ranks there are.
    """
    yield from ()
