"""Run the workers that a program launches with torchelastic as virtual ranks."""

import os
from collections.abc import Callable
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


class ElasticLauncher:
    """Starts ranks for ``elastic_launch``."""

    def __init__(self, spawner: Spawner) -> None:
        self.spawner = spawner

    def install(self, replaced: Replaced) -> None:
        """Start ranks when functions are launched. Reject commands, other processes and several nodes."""
        replaced.put(api.elastic_launch, "__call__", lambda launcher, *args: self.launch(launcher, args))
        replaced.put(PContext, "start", _refuse)

    def launch(self, launcher: Any, args: tuple[Any, ...]) -> dict[int, Any]:
        """Call the launcher's function on each rank. Return the results by rank. Raise RuntimeError if unsupported."""
        config, function = launcher._config, launcher._entrypoint
        if not callable(function):
            raise RuntimeError(NO_PROCESSES)
        if config.min_nodes > 1:
            raise RuntimeError(NO_NODES)
        spawner, results = self.spawner, dict[int, Any]()
        job, call = spawner.world.new_job(), spawner.pack(function, args, {}, with_main=True)
        for number in range(config.nproc_per_node):
            rank = spawner.add(job, number, _keep(call, results))
            variables = name_as_torchrun(number, config.nproc_per_node, config.nproc_per_node)
            rank.own.environment.update({os.fsencode(name): os.fsencode(text) for name, text in variables.items()})
        Spawned(spawner.world, job).join()
        return results


def _keep(call: Callable[[Rank], Any], results: dict[int, Any]) -> Callable[[Rank], None]:

    def body(rank: Rank) -> None:
        results[rank.number] = call(rank)

    return body


def _refuse(context: Any) -> NoReturn:
    raise RuntimeError(NO_PROCESSES)
