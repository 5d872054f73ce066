"""Ranks that gloo joins over TCP, on the reference engine: what a rank posts and awaits, and what is on connections.

A rank is one thread that follows the executor's pipeline (``collectives.pipeline``): it posts, waits, reduces, and
posts what follows. A receive sends a *notice* to the sender, and data comes into its stream when notice and send are
both there. A send is done when all of it is in the send buffer, long before it arrives.
"""

from collections import defaultdict, deque
from collections.abc import Iterable
from math import inf

import simpy

from collectives.pipeline.bound_steps import Extent, Transfer, Write
from collectives.pipeline.extents import plan_pipeline
from collectives.pipeline.pipeline import SliceStep
from collectives.records.messages import Message
from collectives.records.spans import Span
from collectives.request import Request
from collectives.step import SEND, Step
from collectives.transport import Transport
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.graph import Link
from simcomm.model.tcp_order import MESSAGE_HEADER, core_order, entry_order, serve_core, spending_order
from simcomm.model.trouble import NO_TROUBLE, Trouble, check_tcp_trouble
from simcomm.reference.engine import Buffer, Process, Simulation, Site
from simcomm.reference.tcp_streams import Alarm, Item, ShapedLink, Stream

Pair = tuple[int, int]  # the ranks that send and receive
Lane = tuple[int, int, int]  # both, and the chain whose messages follow each other


class TcpHalf:
    """A posted send or receive of a message or a slice of one; ``done`` fires when the rank may go on."""

    __slots__ = ("done", "posted", "site", "transfer")

    def __init__(self, transfer: Transfer[Extent], site: Site, done: simpy.Event) -> None:
        self.transfer, self.site, self.done, self.posted = transfer, site, done, done.env.now


class TcpSimulation(Simulation):
    """Virtual ranks that carry out ``request``, any number of times, over a transport with TCP terms.

    Raises InputError for trouble that these terms do not know: links that change, and ranks that fail.
    """

    def __init__(self, request: Request, cluster: Cluster, transport: Transport, trouble: Trouble = NO_TROUBLE) -> None:
        check_tcp_trouble(trouble)
        super().__init__(cluster, transport, trouble)
        assert transport.tcp is not None
        self.request, self.terms = request, transport.tcp
        shares = trouble.link_shares()
        self._links = {
            link: ShapedLink(alone * shares.get(link, 1.0), cluster.graph.edges[link]["latency"], self.terms.burst)
            for link, (alone, _) in self.network.full_capacities.items()
        }
        self._cores = [0.0] * (0 if self.terms.cores == inf else int(self.terms.cores))
        self._streams: dict[Pair, Stream] = {}
        self._sends: defaultdict[Lane, deque[TcpHalf]] = defaultdict(deque)  # that no notice has come for
        self._notices: defaultdict[Lane, int] = defaultdict(int)  # that have come before their sends
        self._receives: defaultdict[Lane, deque[TcpHalf]] = defaultdict(deque)  # whose data has not come
        self._entries = [0] * cluster.world_size  # items that each rank has put on streams
        self._halves: dict[Transfer[Extent], TcpHalf] = {}
        self._records: dict[tuple[int, ...], Message] = {}

    def run(self, ranks: Iterable[Process]) -> float:
        """Run one process per rank to its end. Return the seconds that it took."""
        done = self.env.all_of([self.env.process(rank) for rank in ranks])
        self.env.run(done)
        elapsed = self.env.now
        self.messages = list(self._records.values())
        return float(elapsed)

    def collective(
        self, rank: int, programs: Iterable[Iterable[Step]], buffer: Buffer, operator: str, index: int = 0
    ) -> Process:
        """Carry out one rank's part in the request, as the executor does. ``index`` says which repetition it is."""
        pipeline = plan_pipeline(self.request, rank, self.cluster.world_size, step_by_step=not self.terms.pipeline)
        for place, step in enumerate(pipeline.first):
            yield from self._post_step(rank, index, step, 0.0 if place else self.terms.start)
        for step in pipeline.steps:
            yield from self._complete(rank, index, step)
            if step.next is not None:
                yield from self._post_step(rank, index, step.next)

    def _post_step(self, rank: int, index: int, step: SliceStep[Extent], start: float = 0.0) -> Process:
        """Post the messages of a step, and do what is to be done while they are under way.

        The rank has a core for as long as it posts, and ``start`` seconds before.
        """
        site = Site(index, rank, step.channel, step.step.number)
        if self.terms.exchange_overhead > 0 and step.step.sends and step.step.receives:
            yield Alarm(self.env, self.terms.exchange_overhead, spending_order(rank))
        transfers = (*step.receives, *step.step.sends, *step.early_receives)
        if (held := start + len(transfers) * self.terms.post_cpu) > 0:
            yield from self._occupy(rank, start + self.terms.post_cpu, held)
        for place, transfer in enumerate(transfers):
            if place and self.terms.post_cpu > 0:
                yield Alarm(self.env, self.terms.post_cpu, spending_order(rank))
            half = TcpHalf(transfer, site, self.env.event())
            self._halves[transfer] = half
            if transfer.operation.kind is SEND:
                self._post_send(half, (rank, transfer.peer, step.chain))
            else:
                self._post_receive(half, (transfer.peer, rank, step.chain))
        for write in step.step.writes:
            yield from self._write(write, site)

    def _complete(self, rank: int, index: int, step: SliceStep[Extent]) -> Process:
        """Wait for a step's messages, writing each when it has come, and do the writes that had to wait for all."""
        site = Site(index, rank, step.channel, step.step.number)
        for transfer in step.step.receives:
            yield from self._await(rank, transfer)
            if transfer.write is not None:
                yield from self._write(transfer.write, site)
        for transfer in step.due_sends:
            yield from self._await(rank, transfer)
        for write in step.step.late_writes:
            yield from self._write(write, site)

    def _await(self, rank: int, transfer: Transfer[Extent]) -> Process:
        """Wait until a transfer is done. A rank that had to wait takes a core before it goes on."""
        done = self._halves.pop(transfer).done
        slept = not done.triggered
        yield done
        if slept and self.terms.wake_cpu > 0:
            yield from self._occupy(rank, self.terms.wake_cpu, self.terms.wake_cpu)

    def _write(self, write: Write[Extent], site: Site) -> Process:
        seconds = self.transport.gamma * write.target.nbytes
        if not self._cores:
            yield from self.compute("reduce", site, seconds)
        elif seconds > 0:
            slower = float(self.trouble.slowdown(site.collective, site.rank, site.channel, site.step))
            begin = self.env.now
            yield from self._occupy(site.rank, seconds * slower, seconds * slower)
            self.spans.append(Span(site.rank, "reduce", site.step, begin, self.env.now, site.channel, site.collective))

    def _occupy(self, rank: int, seconds: float, held: float) -> Process:
        """Let a rank's thread take so many seconds of a core, when one is free; the core is ``held`` for it longer."""
        yield Alarm(self.env, 0.0, core_order(rank))
        end = serve_core(self._cores, self.env.now, held) - (held - seconds)
        yield Alarm(self.env, end - self.env.now, spending_order(rank))

    def _post_send(self, half: TcpHalf, lane: Lane) -> None:
        """Send at once if the receiver's notice is there, else when it comes."""
        if self._notices[lane]:
            self._notices[lane] -= 1
            self._send(half, lane)
        else:
            self._sends[lane].append(half)

    def _post_receive(self, half: TcpHalf, lane: Lane) -> None:
        """Tell the sender that this rank is ready to receive."""
        self._receives[lane].append(half)
        src, dst, _ = lane
        if self.terms.notices:
            self._put((dst, src), Item(MESSAGE_HEADER, lambda: self._be_told(lane)), self.terms.notice_overhead)
        else:
            self._be_told(lane)

    def _be_told(self, lane: Lane) -> None:
        """Let a notice come: the first send that waits for one starts."""
        if self._sends[lane]:
            self._send(self._sends[lane].popleft(), lane)
        else:
            self._notices[lane] += 1

    def _send(self, half: TcpHalf, lane: Lane) -> None:
        """Put data on its stream; it is one message's, or a slice of one."""
        src, dst, _ = lane
        name = half.site.collective, src, dst, half.site.channel, half.site.step, half.transfer.operation.chunk
        late = float(self.trouble.delay(*name)) if self.trouble.messages else 0.0
        item = Item(half.transfer.nbytes + MESSAGE_HEADER, lambda: self._arrive(half, lane), lambda: self._let_go(half))
        self._put((src, dst), item, self.transport.overhead + late)

    def _let_go(self, half: TcpHalf) -> None:
        half.done.succeed()

    def _put(self, pair: Pair, item: Item, delay: float) -> None:
        rank = pair[0]
        self._entries[rank] += 1
        self._stream(pair).put(item, delay, entry_order(rank, self._entries[rank]))

    def _arrive(self, sender: TcpHalf, lane: Lane) -> None:
        """Let the last byte of a message, or of a slice, come: its receive is done."""
        receiver = self._receives[lane].popleft()
        receiver.done.succeed()
        self._record(sender, receiver, lane)

    def _stream(self, pair: Pair) -> Stream:
        """Return the stream from one rank to another, made when it is first used."""
        if pair not in self._streams:
            src, dst = (self.cluster.hosts[rank] for rank in pair)
            way, back = (self._shaped(self.network.route(*ends).links) for ends in ((src, dst), (dst, src)))
            number = pair[0] * self.cluster.world_size + pair[1]
            self._streams[pair] = Stream(self.env, number, self.terms, way, back, self._cores)
        return self._streams[pair]

    def _shaped(self, links: Iterable[Link]) -> list[ShapedLink]:
        return [self._links[link] for link in links]

    def _record(self, sender: TcpHalf, receiver: TcpHalf, lane: Lane) -> None:
        """Note a message; of slices, all that have come so far as one."""
        src, dst, _ = lane
        site, transfer, there = sender.site, sender.transfer, receiver.transfer.operation
        key = site.collective, src, site.channel, site.step, transfer.position
        before = self._records.get(key)
        posted, ready = sender.posted, receiver.posted
        nbytes = transfer.nbytes
        if before is not None:
            posted, ready = min(posted, before.src_posted), min(ready, before.dst_posted)
            nbytes += before.nbytes
        route = self.network.route(self.cluster.hosts[src], self.cluster.hosts[dst])
        for link in route.links:
            self.network.carried[link] += transfer.nbytes
        what = site.step, transfer.operation.chunk, nbytes, max(posted, ready), self.env.now, route.nodes, site.channel
        where = receiver.transfer.step, there.count, there.into, there.kind.combines, posted, ready, site.collective
        self._records[key] = Message(src, dst, *what, *where)
