"""What no algorithm can do without, and how a rate becomes a bus bandwidth.

Sources: Bruck, Ho, Kipnis, Upfal, Weathersby (1997) for steps; Chan, Heimlich, Purkayastha, van de Geijn (2007) and
Patarasuk and Yuan (2009) for bytes; the nccl-tests documentation, PERFORMANCE.md, for bus bandwidth.
"""


def least_steps(p: int, ports: int = 1) -> int:
    """Steps that no algorithm can do without when a rank sends and receives ``ports`` messages at a time.

    In a step, what a rank knows reaches ``ports`` more ranks for each that knew it (Bruck, Ho, Kipnis, Upfal,
    Weathersby 1997, proposition 2.1).
    """
    steps, reach = 0, 1
    while reach < p:
        steps, reach = steps + 1, reach * (ports + 1)
    return steps


def least_sent_share(collective: str, p: int) -> float:
    """Bytes that the busiest rank must send at least, as a share of the buffer's bytes.

    Of what a rank starts with, all that others need must leave it, and what the others end with must come from
    somewhere (Chan et al. 2007, table 1; Patarasuk and Yuan 2009 for all_reduce).
    """
    others = (p - 1) / p
    if p == 1:
        return 0.0
    return {"broadcast": 1.0, "reduce": 1.0, "all_reduce": 2 * others, "gather": 1 / p, "barrier": 1.0}.get(
        collective, others
    )


def bus_factor(collective: str, p: int) -> float:
    """busbw over algbw, as nccl-tests defines it (doc/PERFORMANCE.md), which leaves out barrier."""
    others = (p - 1) / p
    return {"broadcast": 1.0, "reduce": 1.0, "all_reduce": 2 * others, "barrier": 1.0}.get(collective, others)
