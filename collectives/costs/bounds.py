"""Compute lower bounds on the steps and bytes of any algorithm, and the ratio of bus to algorithm bandwidth.

Sources: Bruck, Ho, Kipnis, Upfal, Weathersby (1997) for steps; Chan, Heimlich, Purkayastha, van de Geijn (2007) and
Patarasuk and Yuan (2009) for bytes; the nccl-tests documentation, PERFORMANCE.md, for bus bandwidth.
"""


def least_steps(p: int, ports: int = 1) -> int:
    """Return the minimum number of steps of any algorithm for ``p`` ranks that each send ``ports`` messages per step.

    In one step, the number of ranks that have the data of a given rank grows by a factor of at most ``ports + 1``
    (Bruck, Ho, Kipnis, Upfal, Weathersby 1997, proposition 2.1).

    >>> least_steps(8), least_steps(9), least_steps(9, ports=2)
    (3, 4, 2)
    """
    steps, reach = 0, 1
    while reach < p:
        steps, reach = steps + 1, reach * (ports + 1)
    return steps


def least_sent_share(collective: str, p: int) -> float:
    """Return the minimum amount of data that the busiest of ``p`` ranks must send, divided by the buffer size.

    The minimum follows from the data that a rank must send to other ranks or receive from them (Chan et al. 2007, table
    1; Patarasuk and Yuan 2009 for all_reduce).

    >>> least_sent_share("all_reduce", 4)
    1.5
    """
    others = (p - 1) / p
    if p == 1:
        return 0.0
    return {"broadcast": 1.0, "reduce": 1.0, "all_reduce": 2 * others, "gather": 1 / p, "barrier": 1.0}.get(
        collective, others
    )


def bus_factor(collective: str, p: int) -> float:
    """Return the bus bandwidth divided by the algorithm bandwidth for ``p`` ranks.

    As in nccl-tests (doc/PERFORMANCE.md), the factor is the traffic of the busiest link divided by the buffer size. The
    factor of a barrier is 1, because nccl-tests does not define one.

    >>> bus_factor("all_gather", 4)
    0.75
    """
    others = (p - 1) / p
    if collective == "all_reduce":
        return 2 * (p - 1) / p
    return 1.0 if collective in ("broadcast", "reduce", "barrier", "send_recv", "hypercube") else others
