"""How to simulate: with which engine, what goes wrong meanwhile, and what is recorded."""

from dataclasses import dataclass

from collectives.records.waits import Recording
from simcomm.model.trouble import NO_TROUBLE, Trouble


@dataclass(frozen=True)
class SimulationOptions:
    """What ``simcomm.run`` is asked for besides the collective, where each is explained."""

    engine: str | None = None
    trouble: Trouble = NO_TROUBLE
    record: Recording = True

    @property
    def need_messages(self) -> bool:
        """Whether an engine or trouble is asked for, so that messages have to be simulated."""
        return self.engine is not None or self.trouble != NO_TROUBLE


TIMES_ONLY = SimulationOptions(record=False)
