"""What schedules have in common that say once what all ranks say, relative to a rank's own number."""

import numpy as np

from collectives.schedule.call import ProgramCall
from collectives.schedule.table import Ints
from collectives.step import Kind


class RelativeSchedule(ProgramCall):
    """What any one rank says, by step and channel; one entry of each array for each of its operations."""

    channel: Ints
    step: Ints
    kind: Ints
    peer: Ints  # how far the other rank is, as ``ranks_at`` takes it; 0 for local operations
    count: Ints
    match: Ints  # the entry of the other end; -1 for local operations

    def __repr__(self) -> str:
        sends = int(np.count_nonzero(self.kind == Kind.SEND))
        return f"<{type(self).__name__} {self.describe()}: {sends} messages of each rank>"

    @property
    def steps(self) -> int:
        """Steps of the channel that has most."""
        return int(self.step.max(initial=-1)) + 1

    @property
    def channels(self) -> int:
        """Channels of a rank."""
        return int(self.channel.max(initial=0)) + 1

    def ranks_at(self, distance: Ints, ranks: Ints) -> Ints:
        """Return the ranks at these distances from each of ``ranks``; [distances, ranks]."""
        raise NotImplementedError
