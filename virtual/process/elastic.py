"""Run the workers that a program launches with torchelastic as virtual ranks."""

import os
from typing import Any, NoReturn

from torch.distributed.elastic.multiprocessing.api import PContext
from torch.distributed.launcher import api

from virtual.process.programs import name_as_torchrun
from virtual.process.replaced import Replaced
from virtual.process.spawning import Spawned, Spawner
from virtual.ranks.rank import Rank

NO_PROCESSES = (
    "commands and processes of torchelastic cannot run on virtual ranks, which are threads: pass a function to "
    "elastic_launch, or run the script with ringlab virtual --ranks N SCRIPT"
)
NO_NODES = "torchelastic on several nodes cannot run on virtual ranks: pass min_nodes=1, max_nodes=1"


def install_elastic(spawner: Spawner, replaced: Replaced) -> None:
    """Let ``elastic_launch`` start a function on ranks. Reject commands, torchelastic's processes and several nodes."""
    replaced.put(api.elastic_launch, "__call__", lambda launcher, *args: _launch(spawner, launcher, args))
    replaced.put(PContext, "start", _refuse)


def _launch(spawner: Spawner, launcher: Any, args: tuple[Any, ...]) -> dict[int, Any]:
    config, function = launcher._config, launcher._entrypoint
    if not callable(function):
        raise RuntimeError(NO_PROCESSES)
    if config.min_nodes > 1:
        raise RuntimeError(NO_NODES)
    job, call = spawner.world.new_job(), spawner.pack(function, args, {}, with_main=True)
    results = dict[int, Any]()

    def body(rank: Rank) -> None:
        results[rank.number] = call(rank)

    for number in range(config.nproc_per_node):
        rank = spawner.add(job, number, body)
        variables = name_as_torchrun(number, config.nproc_per_node, config.nproc_per_node)
        rank.own.environment.update({os.fsencode(name): os.fsencode(text) for name, text in variables.items()})
    Spawned(spawner.world, job).join()
    return results


def _refuse(context: Any) -> NoReturn:
    raise RuntimeError(NO_PROCESSES)
