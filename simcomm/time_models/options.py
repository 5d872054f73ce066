"""How to simulate: with which engine, what goes wrong meanwhile, and what is recorded."""

from dataclasses import dataclass

from collectives.errors import InputError
from collectives.quoting import quote
from collectives.records.waits import Record
from simcomm.model.trouble import NO_TROUBLE, Trouble

ENGINES = ("simpy", "compiled")  # both are exact
APPROXIMATE = "approximate"  # the compiled one, where it takes events that lie close together as one

SIMPY_UP_TO = 1_000  # messages: up to so many, simpy takes less time than loading the compiled engine's machine code


def check_engine(engine: str | None) -> None:
    """Raise InputError unless ``engine`` is one, or None for whichever suits the number of messages.

    >>> check_engine("ns-3")
    Traceback (most recent call last):
    ...
    collectives.errors.InputError: engine 'ns-3' is not known; there are simpy, compiled and approximate
    """
    if engine is not None and engine not in (*ENGINES, APPROXIMATE):
        raise InputError(f"engine {quote(engine)} is not known; there are {', '.join(ENGINES)} and {APPROXIMATE}")


@dataclass(frozen=True)
class SimulationOptions:
    """What ``simcomm.run`` is asked for besides the collective, where each is explained.

    Raises InputError for an engine that is not known.
    """

    engine: str | None = None
    trouble: Trouble = NO_TROUBLE
    record: Record = Record.MESSAGES

    def __post_init__(self) -> None:
        check_engine(self.engine)

    @property
    def need_messages(self) -> bool:
        """Whether an engine or trouble is asked for, so that messages have to be simulated."""
        return self.engine is not None or self.trouble != NO_TROUBLE

    def choose_engine(self, messages: int) -> str:
        """Return the engine asked for or, for None, simpy where all repetitions of so many messages are few.

        >>> SimulationOptions().choose_engine(24), SimulationOptions().choose_engine(8064)
        ('simpy', 'compiled')
        """
        return self.engine or ("simpy" if self.trouble.runs * messages <= SIMPY_UP_TO else "compiled")


TIMES_ONLY = SimulationOptions(record=Record.TIMES)
