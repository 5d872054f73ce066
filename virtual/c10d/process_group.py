"""The process group of virtual ranks, which checks and posts each rank's operations."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from virtual.c10d.backend_rules import NAMED, RULES, BackendRules
from virtual.c10d.work import VirtualWork
from virtual.matching.exchanges import Exchange
from virtual.matching.group import VirtualGroup
from virtual.matching.posted import Likeness, Posted, format_shape
from virtual.matching.samples import has_data
from virtual.ranks.finding import STARTER, format_ranks
from virtual.ranks.placement import ON_CPU, Placement, find_place
from virtual.ranks.rank import PastCall, Rank, RankWait
from virtual.ranks.sites import find_asked, find_caller_package, is_posted_by_torch

Tensors = Sequence[torch.Tensor]
OPERATORS = {
    NAMED.SUM: "sum",
    NAMED.AVG: "mean",
    NAMED.PRODUCT: "product",
    NAMED.MIN: "min",
    NAMED.MAX: "max",
    NAMED.BAND: "band",
    NAMED.BOR: "bor",
    NAMED.BXOR: "bxor",
    NAMED.PREMUL_SUM: "sum",
}
SHOWN = 3  # tensors of a call that messages list


class VirtualBackend:
    """Provides the backend attributes that c10d reads."""

    supports_coalescing = supports_splitting = supports_tensor_alloc = supports_time_estimate = False

    @staticmethod
    def name() -> str:
        return "virtual"


def find_operator(options: Any) -> tuple[Any, Any]:
    """Return torch's reduction operator, and the factor of a PREMUL_SUM. The factor of every other operator is None."""
    operator = getattr(options, "reduceOp", options)
    named = getattr(operator, "op", operator)
    return named, operator.__getstate__()[1] if named == NAMED.PREMUL_SUM else None


class VirtualProcessGroup(dist.ProcessGroup):
    """A process group whose operations run on virtual ranks. Peers and roots are group ranks.

    Several ranks may use the same object through torch's global variables. The calling thread determines the rank.
    """

    def __init__(self, group: VirtualGroup, place: int) -> None:
        super().__init__(place, len(group.ranks))  # type: ignore[call-arg]  # one of its overloads
        self.group, self._place = group, place
        self._name, self._description = group.name, "undefined"
        self.backends = {"cpu": "gloo"}  # by type of device
        self.placement: Placement | None = None  # set if the run has GPUs

    def __repr__(self) -> str:
        return f"<group {self._name} of {format_ranks(self.group.ranks)}>"

    # -- methods that c10d calls

    def rank(self) -> int:
        caller = self.group.world.me()
        return self._place if caller is None else self.group.places.get(caller.number, self._place)

    def getBackendName(self) -> str:  # noqa: N802 - as C++ calls it
        """Return a name unknown to DDP's Reducer. For "gloo" or "nccl", the Reducer would look for the C++ backend."""
        return "virtual"

    def _get_backend(self, device: Any) -> type[VirtualBackend]:
        return VirtualBackend

    def getGroupName(self) -> str:  # noqa: N802 - as C++ calls it
        return self._name

    def setGroupName(self, name: str) -> None:  # noqa: N802 - as C++ calls it
        self._name = name

    def getGroupDesc(self) -> str:  # noqa: N802 - as C++ calls it
        return self._description

    def setGroupDesc(self, description: str) -> None:  # noqa: N802 - as C++ calls it
        self._description = description

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu"), torch.device("cuda")]

    _set_group_name, _set_group_desc = setGroupName, setGroupDesc  # type: ignore[assignment]
    group_name = property(lambda self: self._name)
    group_desc = property(lambda self: self._description)

    def shutdown(self) -> None:
        """Do nothing: the group has no resources."""

    abort = shutdown

    # -- posting

    def _caller(self) -> Rank:
        rank = self.group.world.me()
        if rank is not None and rank.number == STARTER:
            size = rank.world_size
            advice = (
                f"this process is one of {size}: pass --ranks {size} if each rank runs this program, or start all ranks"
            )
            raise RuntimeError(
                "the program that starts ranks cannot run on virtual ranks as a rank itself; "
                + (f"{advice} with multiprocessing" if size else "start ranks with multiprocessing, not threads")
            )
        if rank is None or rank.number not in self.group.places:
            raise RuntimeError(_say_not_in_group(self, rank))
        world = self.group.world
        world.refuse_threads(rank)
        world.computing.charge(rank)
        world.check(rank)
        return rank

    def _call(self, verb: str, exchange: Exchange, shown: Tensors, result: Any, **alike: Any) -> VirtualWork:
        """Post this rank's part of a collective. ``alike`` overrides properties that must be equal on all ranks."""
        rank, group = self._caller(), self.group
        dtype = exchange.dtype if shown else None
        rooted = exchange.from_root or exchange.to_root
        if rooted and not 0 <= exchange.root < len(group.ranks):
            raise RuntimeError(f"ProcessGroup{self._rules(shown).title}::{verb}: invalid root rank: {exchange.root}")
        root = group.ranks[exchange.root] if rooted else None
        op = alike.pop("op", "")
        lengths = alike.pop("lengths", tuple(tensor.numel() for tensor in shown))
        words = [format_shape(tensor) for tensor in shown[:SHOWN]]
        words += [f"{len(shown)} tensors"] * (len(shown) > SHOWN) + [op] * bool(op)
        words += [f"{'src' if exchange.from_root else 'dst'}={root}"] * rooted
        callers, caller_name, is_programs = find_asked()
        if "object" in caller_name:
            verb = caller_name  # the program's name; tensors carry the pickled objects
        what, likeness = f"{verb}({', '.join(words)})", Likeness(verb, lengths, dtype, op, root)
        self._claim_gpu(shown, caller_name)
        call = Posted(
            rank, group, "calls", what, callers[0], shown, is_programs, callers, caller_name, likeness, exchange
        )
        return self._posted(call, result, group.call)

    def _posted(self, posted: Any, result: Any, post: Any) -> VirtualWork:
        rank = posted.rank
        rank.history.append(PastCall(posted.what, posted.site))
        work = VirtualWork(posted, result)
        post(posted)
        self.group.world.computing.forget(rank)
        return work

    def _rules(self, tensors: Tensors) -> BackendRules:
        """Return the argument checks of the backend that handles ``tensors``."""
        has_cpu = self.placement is not None and any(find_place(tensor) == ON_CPU for tensor in tensors)
        types = ("cpu",) if has_cpu and not is_posted_by_torch() else ("cuda", "cpu")
        backends = [self.backends[device_type] for device_type in types if device_type in self.backends]
        if not backends:
            raise RuntimeError(f"No backend type associated with device type {types[0]}")
        return RULES.get(backends[0], RULES["gloo"])

    def _claim_gpu(self, tensors: Tensors, caller_name: str) -> None:
        if self.placement is not None and "object" in caller_name and "cpu" not in self.backends:
            self.claim(self.placement.use())
        elif tensors:
            self.claim(find_place(tensors[0]))

    def claim(self, place: int | None) -> None:
        """Assign a GPU to the caller in this group. Raise NCCL's DistBackendError if another rank uses it."""
        if self.placement is None or self.backends.get("cuda") != "nccl" or place in (None, ON_CPU):
            return
        number, gpu = self._caller().number, self.placement.hardware(place)
        owner = self.group.gpus.setdefault(gpu, number)
        if owner != number:
            ranks = f"rank {owner} and rank {number} both on CUDA device {gpu[1]}"
            raise dist.DistBackendError(f"ncclInvalidUsage: Duplicate GPU detected : {ranks}")

    def _reduction(self, verb: str, tensors: Tensors, opts: Any) -> tuple[str, Any]:
        named, factor = find_operator(opts)
        self._rules(tensors).check_reduction(verb, tensors, named)
        return OPERATORS[named], factor

    # -- collectives

    def allreduce(self, tensors: Tensors, opts: Any = None) -> VirtualWork:
        op, factor = self._reduction("all_reduce", tensors, NAMED.SUM if opts is None else opts)
        exchange = Exchange("all_reduce", self.rank(), op=op, factor=factor, inputs=tensors, outputs=tensors)
        return self._call("all_reduce", exchange, tensors, tensors, op=op)

    allreduce_coalesced = allreduce

    def reduce(self, tensors: Tensors, opts: Any) -> VirtualWork:
        op, factor = self._reduction("reduce", tensors, opts)
        exchange = Exchange("reduce", self.rank(), opts.rootRank, op, factor, inputs=tensors, outputs=tensors)
        return self._call("reduce", exchange, tensors, tensors, op=op)

    def broadcast(self, tensors: Tensors, opts: Any) -> VirtualWork:
        self._rules(tensors).check_moved("broadcast", tensors)
        exchange = Exchange("broadcast", self.rank(), opts.rootRank, inputs=tensors, outputs=tensors)
        return self._call("broadcast", exchange, tensors, tensors)

    def barrier(self, opts: Any = None) -> VirtualWork:
        return self._call("barrier", Exchange("barrier", self.rank()), [], [])

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """Wait for all ranks. Raise gloo's RuntimeError if a rank never arrives or if ``timeout`` is zero."""
        work = self.barrier()
        call, world = work.posted, self.group.world
        if timeout is not None and not float(getattr(timeout, "total_seconds", lambda: timeout)()):
            raise RuntimeError(f"Rank {self.rank()} timed out in monitoredBarrier after 0 ms.")
        waiting = RankWait("monitored_barrier()", call.site, call, gives_up=True)
        world.wait_until(call.rank, lambda: call.is_done, waiting)
        if not call.is_done:
            raise RuntimeError(f"Rank {call.awaits[0]} failed to pass monitoredBarrier in time")
        work.wait()

    def allgather(self, outs: Sequence[Tensors], ins: Tensors, opts: Any = None) -> VirtualWork:
        self._rules([*outs[0], *ins]).check_parts("allgather", outs[0], ins[0], len(self.group.ranks))
        outputs = [[tensor] for tensor in outs[0]]
        return self._all_gather("all_gather", ins, outputs, outs)

    def allgather_coalesced(self, outs: Sequence[Tensors], ins: Tensors, opts: Any = None) -> VirtualWork:
        return self._all_gather("all_gather_coalesced", ins, outs, outs)

    def all_gather_single(self, out: torch.Tensor, inp: torch.Tensor, opts: Any = None) -> VirtualWork:
        return self.all_gather_single_coalesced([out], [inp], opts)

    def all_gather_single_coalesced(self, outs: Tensors, ins: Tensors, opts: Any = None) -> VirtualWork:
        """Gather several tensors: on every rank, ``outs[k]`` receives the concatenation of all ranks' ``ins[k]``."""
        size = len(self.group.ranks)
        for out, inp in zip(outs, ins, strict=True):
            self._rules([out, inp]).check_whole("all_gather", out, inp, size)
        columns = [_pieces(out, size, inp) for out, inp in zip(outs, ins, strict=True)]
        outputs = list(zip(*columns, strict=True))
        return self._all_gather("all_gather_into_tensor", ins, outputs, list(outs))

    _allgather_base = all_gather_single  # type: ignore[assignment]
    allgather_into_tensor_coalesced = all_gather_single_coalesced  # type: ignore[assignment]

    def _all_gather(self, verb: str, ins: Tensors, outputs: Any, result: Any) -> VirtualWork:
        exchange = Exchange("all_gather", self.rank(), inputs=ins, outputs=outputs, world_size=len(self.group.ranks))
        self._rules(ins).check_moved("all_gather", ins)
        lengths = tuple(tensor.numel() for tensors in outputs for tensor in tensors)
        input_lengths, mine = ([tensor.numel() for tensor in tensors] for tensors in (ins, outputs[self.rank()]))
        if mine != input_lengths:
            raise RuntimeError(
                f"{verb}: each rank's part of the output must have {input_lengths} elements like the input, not {mine}"
            )
        return self._call(verb, exchange, ins, result, lengths=lengths)

    def reduce_scatter(self, outs: Tensors, ins: Sequence[Tensors], opts: Any) -> VirtualWork:
        self._rules([*outs, *ins[0]]).check_parts("reduce_scatter", ins[0], outs[0], len(self.group.ranks))
        return self._reduce_scatter("reduce_scatter", outs, [ins[0]], opts)

    def reduce_scatter_single(self, out: torch.Tensor, inp: torch.Tensor, opts: Any) -> VirtualWork:
        return self.reduce_scatter_single_coalesced([out], [inp], opts)

    def reduce_scatter_single_coalesced(self, outs: Tensors, ins: Tensors, opts: Any) -> VirtualWork:
        size = len(self.group.ranks)
        for out, inp in zip(outs, ins, strict=True):
            self._rules([out, inp]).check_whole("reduce_scatter", inp, out, size)
        pieces = [_pieces(inp, size, out) for out, inp in zip(outs, ins, strict=True)]
        return self._reduce_scatter("reduce_scatter_tensor", list(outs), pieces, opts)

    _reduce_scatter_base = reduce_scatter_single  # type: ignore[assignment]
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced  # type: ignore[assignment]

    def _reduce_scatter(self, verb: str, outs: Tensors, pieces: Sequence[Tensors], opts: Any) -> VirtualWork:
        op, factor = self._reduction("reduce_scatter", outs, opts)
        exchange = Exchange("reduce_scatter", self.rank(), op=op, factor=factor, outputs=outs, pieces=pieces)
        lengths = tuple(tensor.numel() for parts in pieces for tensor in parts)
        return self._call(verb, exchange, outs, outs, op=op, lengths=lengths)

    def alltoall(self, outs: Tensors, ins: Tensors, opts: Any = None) -> VirtualWork:
        return self._all_to_all("all_to_all", outs, ins, outs)

    def all_to_all_single(
        self, out: torch.Tensor, inp: torch.Tensor, out_sizes: Any, in_sizes: Any, opts: Any = None
    ) -> VirtualWork:
        size = len(self.group.ranks)
        outs, ins = _split(out, out_sizes, size), _split(inp, in_sizes, size)
        return self._all_to_all("all_to_all_single", outs, ins, [out])

    alltoall_base = all_to_all_single  # type: ignore[assignment]

    def _all_to_all(self, verb: str, outs: Tensors, ins: Tensors, result: Any) -> VirtualWork:
        size, me = len(self.group.ranks), self.rank()
        for way, tensors in (("input", ins), ("output", outs)):
            if len(tensors) != size:
                raise RuntimeError(f"{verb}: {way} tensor list size {len(tensors)} does not match world size {size}")
            self._rules(tensors).check_moved(verb, tensors)
        return self._call(verb, Exchange("all_to_all", me, inputs=ins, outputs=outs), ins, result, lengths=())

    def gather(self, outs: Sequence[Tensors], ins: Tensors, opts: Any) -> VirtualWork:
        size, root, me = len(self.group.ranks), opts.rootRank, self.rank()
        self._rules(ins).check_moved("gather", ins)
        outputs = outs[0] if me == root else ()
        if me == root:
            self._rules(outputs).check_parts("gather", outputs, ins[0], size)
        exchange = Exchange("gather", me, root, inputs=ins, outputs=outputs, world_size=size)
        return self._call("gather", exchange, ins, outs)

    def scatter(self, outs: Tensors, ins: Sequence[Tensors], opts: Any) -> VirtualWork:
        size, root, me = len(self.group.ranks), opts.rootRank, self.rank()
        self._rules(outs).check_moved("scatter", outs)
        inputs = ins[0] if me == root else ()
        if me == root:
            self._rules(inputs).check_parts("scatter", inputs, outs[0], size)
        exchange = Exchange("scatter", me, root, inputs=inputs, outputs=outs, world_size=size)
        return self._call("scatter", exchange, outs, outs)

    # -- messages

    def send(self, tensors: Tensors, peer: int, tag: int = 0) -> VirtualWork:
        return self._message(tensors, peer, tag, True, "send")

    def recv(self, tensors: Tensors, peer: int, tag: int = 0) -> VirtualWork:
        return self._message(tensors, peer, tag, False, "recv")

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> VirtualWork:
        return self._message(tensors, None, tag, False, "recv")

    recvAnysource = recv_anysource  # noqa: N815 - as C++ calls it

    def _message(self, tensors: Tensors, peer: int | None, tag: int, sends: bool, verb: str) -> VirtualWork:
        rank, tensor, size = self._caller(), tensors[0], len(self.group.ranks)
        self._rules(tensors).check_message("recvAnysource" if peer is None else verb, tensor)
        if peer is not None and not 0 <= peer < size:
            raise ValueError(f"{verb}: rank {peer} does not exist in a group of {size}; use 0 to {size - 1}")
        who = "any rank" if peer is None else f"{self.group.ranks[peer]}"
        words = [f"{'to' if sends else 'from'} {who}", format_shape(tensor)] + [f"tag {tag}"] * (tag > 0)
        callers, caller_name, is_programs = find_asked()
        way, what = "sends" if sends else "receives", f"{verb}({', '.join(words)})"
        half = Posted(rank, self.group, way, what, callers[0], tensors, is_programs, callers, caller_name)
        half.peer, half.tag = peer, tag
        self._claim_gpu(tensors, caller_name)
        return self._posted(half, tensors, self.group.message)


def _say_not_in_group(group: VirtualProcessGroup, rank: Rank | None) -> str:
    if rank is None:
        return f"{group!r} is used by a thread that does not belong to a rank"
    package = find_caller_package() or "PACKAGE"
    why = "if a package caches one group per process, give each rank its own copy of the package"
    return f"rank {rank.number} uses {group!r}: {why}: --own {package}"


def _pieces(tensor: torch.Tensor, size: int, part: torch.Tensor) -> Tensors:
    if not has_data([tensor]):
        return [part] * size
    flat = tensor.detach()
    return flat.view(size, *part.shape).unbind(0) if flat.is_contiguous() else flat.reshape(-1).chunk(size)


def _split(tensor: torch.Tensor, sizes: Any, ranks: int) -> Tensors:
    rows = tensor.shape[0] if tensor.dim() else 1
    if sizes is not None and len(sizes):
        if len(sizes) != ranks:
            raise RuntimeError("Number of tensor splits not equal to group size")
        if sum(sizes) != rows:
            raise RuntimeError("Split sizes doesn't match total dim 0 size")
        pieces: Tensors = tensor.detach().split(list(sizes))
        return pieces
    if rows % ranks:
        raise RuntimeError("Tensor's dim 0 does not divide equally across group size")
    return tensor.detach().chunk(ranks)
