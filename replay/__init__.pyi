from replay.recording import read_recording as read_recording
from replay.simulation.replay import replay as replay

__all__: list[str]
