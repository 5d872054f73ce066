"""What an hour of one GPU costs where machines of it are rented."""

from typing import NamedTuple

from simcomm.renting.rentals import Rental


class GpuPrice(NamedTuple):
    """Dollars of one GPU and hour, and the machine that is rented."""

    dollars: float
    rental: Rental


def cheapest_gpu(rentals: tuple[Rental, ...], gpu: str, devices: int) -> GpuPrice | None:
    """Return the cheapest on demand, of machines with so many of a GPU or with a network to others; None for none.

    >>> from simcomm.renting.rentals import read_rentals
    >>> found = cheapest_gpu(read_rentals(), "H100 SXM", 8)
    >>> found.rental.gpus >= 8 or found.rental.nic_bandwidth is not None
    True
    """
    usable = (
        one
        for one in rentals
        if one.gpu == gpu and one.price is not None and (one.gpus >= devices or one.nic_bandwidth is not None)
    )
    found = [GpuPrice((one.price or 0.0) / one.gpus, one) for one in usable]
    return min(found, key=lambda one: one.dollars, default=None)
