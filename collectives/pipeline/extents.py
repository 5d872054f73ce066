"""A rank's pipeline without memory: what it posts and awaits in which order, and how large each message is."""

from collectives.pipeline.bound_steps import Extent
from collectives.pipeline.pipeline import Pipeline, PipelineBuilder
from collectives.request import Request


def plan_pipeline(request: Request, rank: int, world_size: int, *, step_by_step: bool = False) -> Pipeline[Extent]:
    """Return what a rank posts and awaits as the executor does; ``step_by_step`` posts and awaits each step by itself.

    >>> from collectives import find_algorithm
    >>> pipeline = plan_pipeline(Request(find_algorithm("all_reduce/ring"), 100), 0, 4)
    >>> [send.nbytes for step in pipeline.steps for send in step.step.sends]
    [100, 100, 100, 100, 100, 100]
    """
    builder = PipelineBuilder[Extent](
        request, rank, world_size, lambda elements: Extent(elements, request.itemsize), grouped=step_by_step
    )
    return builder.build(Extent(request.elements, request.itemsize))
