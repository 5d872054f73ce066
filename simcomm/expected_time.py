"""How long a simulation is expected to take on this machine, roughly, from how many messages it has."""

from collectives.schedule.cyclic import CyclicSchedule
from collectives.schedule.symbolic_build import AnySchedule, message_count
from simcomm.engine_choice import FEW
from simcomm.model.trouble import NO_TROUBLE, Trouble

# Messages a second on one core of a server of 2020: all_reduce/ring on 32 ranks by simpy, all_to_all/pairwise on 512
# ranks by the compiled engine, every message event by event; and seconds that any run of that engine takes.
SIMPY_RATE, COMPILED_RATE, LEAST_COMPILED_S = 15_000.0, 500_000.0, 0.02
RECORDED_S = 5e-5  # a message, where it is recorded to see who waited for whom


def expected_seconds(
    schedule: AnySchedule, engine: str | None = None, trouble: Trouble = NO_TROUBLE, *, record: bool = False
) -> float:
    """Return about how many seconds all repetitions of a run take, by the rates of ``simpy`` and the compiled engine.

    Where all ranks say the same and nothing changes meanwhile, a shortcut usually finds the times without simulating
    every message: one rank's are counted then. Where none applies it takes longer.

    >>> from collectives import find_algorithm
    >>> from collectives.schedule.symbolic_build import build_compact
    >>> round(expected_seconds(build_compact(find_algorithm("all_reduce/ring"), 64), "simpy"), 2)
    0.54
    """
    messages = message_count(schedule)
    recorded = RECORDED_S * messages if record else 0.0
    if engine == "simpy" or (engine is None and messages * trouble.runs <= FEW):
        return trouble.runs * (messages / SIMPY_RATE + recorded)
    is_short = isinstance(schedule, CyclicSchedule) and not trouble.links_change and not trouble.fails_ranks
    simulated = messages / schedule.world_size if is_short and not record else messages
    return trouble.runs * (LEAST_COMPILED_S + simulated / COMPILED_RATE + recorded)
