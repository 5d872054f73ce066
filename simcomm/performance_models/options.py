"""Define the options of a simulation: engine, faults and what to record."""

from dataclasses import dataclass

from collectives.checks import check_bool
from collectives.errors import InputError
from collectives.quoting import quote
from simcomm.model.faults import NO_FAULTS, Faults

ENGINES = ("simpy", "compiled")
SIMPY_UP_TO = 1_000  # messages up to which simpy is faster than loading the compiled engine's machine code


def check_engine(engine: str | None) -> None:
    """Raise InputError unless ``engine`` is the name of an engine, or None for the default."""
    if engine is not None and engine not in ENGINES:
        raise InputError(f"unknown engine {quote(engine)}; use {' or '.join(ENGINES)}")


@dataclass(frozen=True)
class SimulationOptions:
    """Options of ``simcomm.run``, which documents each of them.

    Raise InputError if the engine is unknown or ``record`` is not a bool.
    """

    engine: str | None = None
    faults: Faults = NO_FAULTS
    record: bool = True

    def __post_init__(self) -> None:
        check_engine(self.engine)
        check_bool("record", self.record)

    @property
    def need_messages(self) -> bool:
        """Whether messages must be simulated because an engine or faults were requested."""
        return self.engine is not None or self.faults != NO_FAULTS

    def choose_engine(self, messages: int) -> str:
        """Return the requested engine. Default: simpy up to 1,000 messages over all repetitions, else compiled."""
        return self.engine or ("simpy" if self.faults.runs * messages <= SIMPY_UP_TO else "compiled")


TIMES_ONLY = SimulationOptions(record=False)
