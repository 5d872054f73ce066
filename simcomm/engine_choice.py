"""Which engine simulates: the one that was asked for, or whichever suits the size."""

from collectives.catalogue import Algorithm
from collectives.errors import InputError
from simcomm.compiled.question import messages_of
from simcomm.programs import traced
from simcomm.sharing import fifo
from simcomm.topology import Cluster
from simcomm.trouble import NONE, Trouble

ENGINES = ("simpy", "compiled")
FEW = 1_000  # messages: fewer are simulated before the compiled engine's machine code is loaded


def check_engine(engine: str | None) -> None:
    """Raise InputError unless it is an engine, or None for whichever suits."""
    if engine is not None and engine not in ENGINES:
        raise InputError(f"engine {engine!r} is not known; there are {' and '.join(ENGINES)}")


def chosen(engine: str | None, algorithm: Algorithm, world_size: int, root: int = 0) -> str:
    """The engine asked for, or simpy for few messages, which it has done sooner, and compiled for many."""
    check_engine(engine)
    return engine or ("simpy" if messages_of(traced(algorithm, world_size, root)) <= FEW else "compiled")


def simpy_only(engine: str | None, cluster: Cluster, trouble: Trouble) -> str | None:
    """The same engine, or simpy for what only that one can do. Raises InputError where compiled was asked for."""
    needs = (
        "trouble" if trouble != NONE else "links that serve one message at a time" if cluster.sharing is fifo else ""
    )
    if needs and engine == "compiled":
        raise InputError(f"engine 'compiled' does not simulate {needs}; use simpy")
    return "simpy" if needs else engine
