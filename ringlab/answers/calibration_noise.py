"""Signs in a calibration that the machine had other work while it was measured."""

from collectives.records.calibration import Calibration
from collectives.records.environment import cores

MOST_RESIDUAL = 0.2  # of a measured point, from the line through all of them
MOST_SLOWER = 2.5  # times: a step in several processes at once, beyond what sharing the cores explains


def find_noise(calibration: Calibration) -> list[str]:
    """Return what contradicts itself in a calibration; nothing where all fits.

    >>> from collectives.records.calibration import Line
    >>> calm, noisy = Line(1e-5, 1e-9, 0.05), Line(1e-5, 1e-9, 0.34)
    >>> find_noise(Calibration(2, 1, one_way=calm, both_ways=noisy, reduction=calm))
    ['a time of messages both ways is 34% off the line through all']
    """
    lines = {
        "messages one way": calibration.one_way,
        "messages both ways": calibration.both_ways,
        "reductions": calibration.reduction,
    }
    found = [
        f"a time of {name} is {line.worst_residual:.0%} off the line through all"
        for name, line in lines.items()
        if line.worst_residual > MOST_RESIDUAL
    ]
    return found + _contradicting_phases(calibration)


def _contradicting_phases(calibration: Calibration) -> list[str]:
    """Return the phases that take several processes far longer than one with as many threads."""
    found = []
    alone = {
        (one.model, one.dataset, one.batch_size, one.threads): one for one in calibration.compute if one.processes == 1
    }
    for several in calibration.compute:
        one = alone.get((several.model, several.dataset, several.batch_size, several.threads))
        if one is None or several.processes == 1:
            continue
        shared = max(1.0, several.processes * several.threads / cores())
        for name in ("forward", "backward", "optimizer"):
            together, single = getattr(several.phases, name), getattr(one.phases, name)
            if together > MOST_SLOWER * shared * single:
                found.append(
                    f"{name} takes {1e3 * together:.3g} ms in {several.processes} processes and "
                    f"{1e3 * single:.3g} ms in one"
                )
    return found
