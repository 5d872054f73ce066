"""Which engine simulates: the one that was asked for, or the one that is faster for the number of messages."""

from collectives.declaration import Algorithm
from collectives.errors import InputError
from collectives.quoting import quote
from simcomm.model.trouble import NO_TROUBLE, Trouble
from simcomm.schedules import compact_schedule

ENGINES = ("simpy", "compiled")  # both are exact
APPROXIMATE = "approximate"  # the compiled one, where it takes events that lie close together as one

FEW = 1_000  # messages: up to so many, simpy takes less time than loading the compiled engine's machine code


def check_engine(engine: str | None) -> None:
    """Raise InputError unless ``engine`` is one, or None for whichever suits the number of messages.

    >>> check_engine("ns-3")
    Traceback (most recent call last):
    ...
    collectives.errors.InputError: engine 'ns-3' is not known; there are simpy, compiled and approximate
    """
    if engine is not None and engine not in (*ENGINES, APPROXIMATE):
        raise InputError(f"engine {quote(engine)} is not known; there are {', '.join(ENGINES)} and {APPROXIMATE}")


def choose_engine(
    engine: str | None,
    algorithm: Algorithm,
    world_size: int,
    root: int = 0,
    trouble: Trouble = NO_TROUBLE,
) -> str:
    """Return the engine asked for or, for None, simpy where all repetitions have few messages, else compiled.

    Raises InputError for an unknown engine.

    >>> from collectives import find_algorithm
    >>> [choose_engine(None, find_algorithm("all_reduce/ring"), world_size) for world_size in (4, 64)]
    ['simpy', 'compiled']
    """
    check_engine(engine)
    if engine is not None:
        return engine
    few = trouble.runs * compact_schedule(algorithm, world_size, root).messages <= FEW
    return "simpy" if few else "compiled"
