"""Which engine simulates: the one that was asked for, or whichever suits the size."""

from collectives.declaration import Algorithm
from collectives.errors import InputError
from simcomm.compiled.engine_input import message_count
from simcomm.model.trouble import NONE, Trouble
from simcomm.schedules import traced

ENGINES = ("simpy", "compiled")
FEW = 1_000  # messages: fewer are simulated before the compiled engine's machine code is loaded


def check_engine(engine: str | None) -> None:
    """Raise InputError unless it is an engine, or None for whichever suits."""
    if engine is not None and engine not in ENGINES:
        raise InputError(f"engine {engine!r} is not known; there are {' and '.join(ENGINES)}")


def chosen(engine: str | None, algorithm: Algorithm, world_size: int, root: int = 0, trouble: Trouble = NONE) -> str:
    """The engine asked for, or simpy for few messages in all repetitions, which it has done sooner; else compiled."""
    check_engine(engine)
    few = engine is None and trouble.runs * message_count(traced(algorithm, world_size, root)) <= FEW
    return engine or ("simpy" if few else "compiled")
