"""The costs that software adds to a network."""

from dataclasses import dataclass

from collectives.checks import check_number
from collectives.errors import InputError
from collectives.quoting import quote


@dataclass(frozen=True)
class Transport:
    """Costs besides those of the links. The default is ideal: rendezvous at no cost, no overhead, the full line rate.

    Raises InputError for a time below 0, and a goodput that is not above 0 and at most 1.

    >>> Transport("my-nic", overhead=3e-6, goodput=0.9, gamma=1e-10).overhead
    3e-06
    """

    name: str = "ideal"
    overhead: float = 0.0  # seconds a message spends in software, besides the latency of its route
    goodput: float = 1.0  # share of the line rate that the payload gets
    gamma: float = 0.0  # seconds per byte reduced, copied or scaled by a rank
    source: str = "by definition"

    def __post_init__(self) -> None:
        check_number("overhead", self.overhead, "seconds", at_least=0)
        check_number("gamma", self.gamma, "seconds per byte", at_least=0)
        if check_number("goodput", self.goodput, above=0) > 1:
            raise InputError(
                f"goodput is {quote(self.goodput)}; give a share of the wire's rate, above 0 and at most 1"
            )
