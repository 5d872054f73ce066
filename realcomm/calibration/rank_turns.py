"""What a rank tells of calibrating and running in turns."""

from dataclasses import dataclass

from realcomm.calibration.blocks import RankBlock
from realcomm.measuring.measurement import RankMeasurement
from realcomm.training.rank_result import RankResult


@dataclass
class RankTurns:
    """What one rank measured in all blocks, those of calibrating and those of running apart."""

    calibration: list[RankBlock]
    collectives: list[RankMeasurement]
    trainings: list[RankResult]
    cpu_s: float  # of all its threads, from the start of the process
