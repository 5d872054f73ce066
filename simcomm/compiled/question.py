"""What is asked of the engine, and what follows from it, each thing worked out when it is first wanted."""

from dataclasses import dataclass, replace
from functools import cached_property

from collectives.columns import StepTable
from collectives.cyclic import Cyclic
from collectives.errors import InputError
from collectives.schedule import Schedule, setting
from collectives.step import Kind
from collectives.tracing import as_table
from collectives.transport import Transport
from simcomm.compiled.cyclic_plans import cyclic_demand, distances, pairs_at, travelling
from simcomm.compiled.exclusive import cyclic_singles, private_links, singles
from simcomm.compiled.jitter import Jitter
from simcomm.compiled.plans import Demand, Sizes, demand
from simcomm.compiled.ways import Pairs, routes_between
from simcomm.compiled.wires import Bools, Floats, Routes
from simcomm.topology import Cluster

Program = Schedule | Cyclic | StepTable
MOST_MESSAGES = 100_000_000  # that are simulated one by one; each takes about 100 bytes


def messages_of(program: Program) -> int:
    """How many messages a traced program has, empty ones included."""
    if isinstance(program, Cyclic):
        return program.world_size * int((program.kind == Kind.SEND).sum())
    columns = program.columns if isinstance(program, StepTable) else program
    return int((columns.kind == Kind.SEND).sum())


@dataclass(frozen=True)
class Question:
    """A traced program on a cluster, and a buffer of ``n`` elements per rank."""

    program: Program
    cluster: Cluster
    transport: Transport
    n: int
    itemsize: int
    jitter: Jitter | None = None
    starts: Floats | None = None  # [ranks]: seconds at which each one's channels begin; 0 unless said

    @property
    def sizes(self) -> Sizes:
        return Sizes(self.program.chunks, self.n, self.itemsize, self.transport.gamma)

    @property
    def alike(self) -> bool:
        """Whether no rank begins later than another, and no message is late."""
        return self.jitter is None and self.starts is None

    def in_full(self) -> "Question":
        """The same with every message written down, so that it can be told what each of them is."""
        return replace(self, program=as_table(self.program)) if isinstance(self.program, Cyclic) else self

    @property
    def posted(self) -> int:
        """How many messages the program has, empty ones included."""
        return messages_of(self.program)

    @cached_property
    def travelling(self) -> int:
        """How many of them are sent."""
        if isinstance(self.program, Cyclic):
            return travelling(self.program, self.sizes)
        return len(self.demand.plan.messages)

    @cached_property
    def demand(self) -> Demand:
        """Stages, messages and pairs of ranks; of a cyclic program without empty messages.

        Raises InputError where there are too many to write down.
        """
        if self.posted > MOST_MESSAGES:
            program = self.program
            raise InputError(
                f"{setting(program.algorithm, program.world_size, program.root)}: its {self.posted} messages differ "
                f"from rank to rank, or share links; up to {MOST_MESSAGES} can be simulated one by one"
            )
        if isinstance(self.program, Cyclic):
            return cyclic_demand(self.program, self.sizes)
        return demand(as_table(self.program), self.sizes)

    @cached_property
    def pairs(self) -> Pairs:
        """Who sends to whom."""
        if isinstance(self.program, Cyclic):
            return pairs_at(self.program, distances(self.program))
        return self.demand.pairs

    @cached_property
    def routes(self) -> Routes:
        """By pair."""
        return routes_between(self.cluster, self.transport, self.pairs)

    @cached_property
    def private(self) -> Bools:
        """Which links never carry two messages at once."""
        cyclic = isinstance(self.program, Cyclic)
        single = cyclic_singles(self.program, self.pairs) if cyclic else singles(self.demand)
        return private_links(single, self.pairs, self.routes)
