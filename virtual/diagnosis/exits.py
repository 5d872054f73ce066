"""Find ranks that exited early, raised an exception, never started, or wait for a store key that nobody sets."""

import os
import re
from collections.abc import Iterable
from difflib import get_close_matches
from traceback import walk_tb

import torch
from torch.nn.parallel import DistributedDataParallel

from collectives.units import count
from virtual.diagnosis.extra_calls import SAME_CALLS, find_extra_call
from virtual.diagnosis.locations import all_locations, awaited_post, awaited_ranks, ranks_except, waiting_locations
from virtual.matching.posted import Posted
from virtual.ranks.finding import STARTER, FindingPlace, ProgramFinding, format_ranks, say_wait
from virtual.ranks.rank import Rank, RankJob, State
from virtual.ranks.sites import find_package

EQUAL_CALLS = (
    "make the same number of calls on all ranks: use the same number of batches (drop_last=True or Join), all_reduce "
    "the flag that ends the loop, and let no return, break or `if rank` skip a collective"
)
ONE_COUNTER = (
    "let either all ranks or none call optimizer.step() (all_reduce the flag), and count iterations, not each rank's "
    "steps, to decide when to call a collective"
)
UNUSED = "use every parameter in the loss, remove the unused ones, or pass find_unused_parameters=True"
STATIC = (
    "replace static_graph=True with find_unused_parameters=True: with a static graph, the loss must use every output "
    "of forward, and the same parameters in each iteration"
)
READY_TWICE = (
    "return the tensors of forward in a tuple, a list or a dict, in which DDP can find them; checkpoint activations "
    "with use_reentrant=False"
)
UNUSED_TEXTS = ("finished reduction in the prior iteration", "training graph has changed")  # parts of DDP's errors
NEEDS_KERNELS = re.compile(r"libcuda|CUDA_HOME|cpu tensor")  # parts of errors from Triton and extension compilers
NEEDS_DRIVER = re.compile(r"CUDA (driver|error)|NVIDIA driver|not compiled with CUDA")
NO_GPU = (
    "custom CUDA or Triton kernels and symmetric memory cannot run on virtual ranks, whose GPUs compute on the CPU: "
    "use torch operators instead"
)
REFUSED = "the backend rejects these arguments on every rank that passes them, before it communicates: change them"
RULES = f"c10d{os.sep}backend_rules.py"  # the file that raises these errors
NOT_THIS_RANKS = "is not initialized in the world group map"  # part of c10d's message about a group of other ranks
NO_GROUP = "process group has not been initialized"  # c10d's message
USED_BEFORE = re.compile(r"\balready (been )?(initiali[sz]ed|registered|set|created)")  # as packages say it
ADVICE = {
    "No backend type associated with device type cpu": "move the tensor to the rank's GPU first, or "
    'create a group for both devices: init_process_group("cpu:gloo,cuda:nccl")',
    "Duplicate GPU detected": "give each rank its own GPU: call torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) "
    "before you move anything to CUDA, or name the GPU in every device: f'cuda:{local_rank}'",
    "invalid device ordinal": "GPUs are numbered from 0 on each machine: use LOCAL_RANK, not RANK",
    "only work with single-device": "move the module to the rank's GPU before you wrap it; on CPUs, omit device_ids",
    "Invalid scalar type": "gloo supports float16, bfloat16, float32, float64, bool, uint8, int8, int32 and int64: "
    "convert the tensor first; to only copy it, pass its bytes: tensor.view(torch.uint8)",
}  # by a part of torch's message
NO_DRIVER = "driver calls cannot run on virtual ranks, whose GPUs have no driver: remove these calls"
WITHOUT_GPUS = "run the program with --gpu, which provides virtual CUDA devices"
NOT_IN_GROUP = re.compile(r"Global rank (\d+) is not part of group")  # c10d's message about src and dst
BARRIER_KEY = "barrier_key"  # part of the store keys that c10d uses for barriers
SHOWN_LINES = 6  # lines of an exception's message


def find_early_exit(job: RankJob) -> ProgramFinding | None:
    """Return a finding for ranks that exited while others wait for them in a collective."""
    by_number = {rank.number: rank for rank in job.ranks}
    for rank in job.ranks:
        post = awaited_post(rank)
        ended = [number for number in (post.awaits if post else ()) if by_number[number].state is State.DONE]
        if post is not None and ended:
            return _report_early_exit(job, post, ended)
    return None


def _report_early_exit(job: RankJob, post: Posted, ended: list[int]) -> ProgramFinding:
    group = post.group
    counts = sorted({group.counts[group.places[number]] for number in ended})
    after = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    waiting = [rank for rank in job.ranks if rank.waiting is not None]
    title = (
        f"{format_ranks(ended)} exited after {after} collectives of this group, and other ranks are blocked in "
        f"collective {group.counts[group.places[post.rank.number]]}"
    )
    locations = waiting_locations(waiting) + _last_calls(job, ended)
    skipped, extra = find_skipped_step(job), find_extra_call(group)
    advice = EQUAL_CALLS
    if skipped is not None:
        title, advice = f"{title}; {skipped}", ONE_COUNTER
    elif extra is not None:
        title, advice = f"{title}; {extra.text}", SAME_CALLS
    return ProgramFinding("early exit", title, locations, advice, time=group.world.calendar.now)


def find_skipped_step(job: RankJob) -> str | None:
    """Describe the first optimizer step that only some ranks made. Return None if all ranks made the same steps."""
    for at in range(1, min(len(rank.steps) for rank in job.ranks)):
        backwards = {rank.number: rank.steps[at] for rank in job.ranks}
        if len(set(backwards.values())) > 1:
            skipped = [number for number, backward in backwards.items() if backward > min(backwards.values())]
            return f"{format_ranks(skipped)} skipped the optimizer step after backward pass {min(backwards.values())}"
    return None


def _last_calls(job: RankJob, ended: list[int]) -> tuple[FindingPlace, ...]:
    by_call: dict[tuple[str, ...], list[int]] = {}
    for rank in job.ranks:
        if rank.number in ended:
            last = [f"{call.what} at {call.site}" for call in list(rank.history)[-1:]]
            by_call.setdefault(tuple(last), []).append(rank.number)
    return tuple(FindingPlace(tuple(numbers), "exited", before=last) for last, numbers in by_call.items())


def find_missing_key(job: RankJob) -> ProgramFinding | None:
    """Return a finding for ranks that wait for a store key that nobody sets."""
    waiting = [rank for rank in job.ranks if rank.waiting is not None and isinstance(rank.waiting.of, tuple)]
    if not waiting:
        return None
    keys = [str(key) for rank in waiting if rank.waiting is not None for key in rank.waiting.of]
    existing = [key for store in job.stores.values() for key in store if BARRIER_KEY not in key]
    close = get_close_matches(keys[0], existing, n=1)
    advice = f"did you mean {close[0]!r}, which is set?" if close else "set the key on one of the ranks"
    title = f"{say_wait(rank.number for rank in waiting)} for the store key {keys[0]!r}, which no rank sets"
    others = [rank for rank in job.ranks if rank not in waiting]
    return ProgramFinding("store key", title, waiting_locations(waiting) + all_locations(others), advice)


def find_missing_ranks(job: RankJob) -> ProgramFinding | None:
    """Return a finding if the world size is larger than the number of ranks started."""
    started = {rank.number for rank in job.ranks}
    waiting = [rank for rank in job.ranks if not started.issuperset(awaited_ranks(rank))]
    if not waiting:
        return None
    size, post = max(rank.world_size for rank in waiting), awaited_post(waiting[0])
    title = f"the world size is {size}, but {count(len(job.ranks), 'rank')} started"
    advice = f"start {size} processes, or set world_size={len(job.ranks)}; real ranks would wait in init_process_group"
    starters = [] if post is None else [rank for rank in post.group.world.ranks if rank.number == STARTER]
    if any(rank.world_size == size for rank in starters):
        title += ", and the program that starts the ranks joins their group"
        advice = "start all ranks with multiprocessing: the program that starts them cannot be a virtual rank itself"
    return ProgramFinding("missing ranks", title, waiting_locations(waiting), advice)


def report_exception(rank: Rank, error: BaseException) -> ProgramFinding:
    """Return a finding for an exception that ended a rank, with the locations of the other ranks."""
    lines = str(error).strip().splitlines()[:SHOWN_LINES]
    text = "\n      ".join([f"raised {type(error).__name__}" + (f": {lines[0]}" if lines else ""), *lines[1:]])
    place = FindingPlace((rank.number,), text, rank.ended_at)
    others = all_locations(ranks_except(rank.job, [rank.number]))
    if any(text in str(error) for text in UNUSED_TEXTS):
        return _report_unused_parameters(rank, error, (place, *others))
    title = f"{format_ranks([rank.number])} raised {type(error).__name__}"
    advice = (_own_advice(rank, error) or _exception_advice(error)) if len(rank.job.ranks) > 1 else ""
    return ProgramFinding("exception", title, (place, *others), advice)


def _report_unused_parameters(rank: Rank, error: BaseException, locations: tuple[FindingPlace, ...]) -> ProgramFinding:
    ddp = _find_ddp(error)
    replaced = [] if ddp is None else find_unreduced(ddp, ddp._module_parameters)
    if replaced:
        title = f"{name_unreduced(replaced)} of rank {rank.number}'s module"
        return ProgramFinding("not in DDP", f"DDP does not know {title}", locations, WRAP_LATER)
    advice = STATIC if "static_graph" in str(error) else UNUSED
    title = f"DDP on rank {rank.number} waits for gradients of parameters that the loss does not depend on"
    return ProgramFinding("unused parameters", title + _which_parameters(str(error)), locations, advice)


def _find_ddp(error: BaseException) -> DistributedDataParallel | None:
    owners = (frame.f_locals.get("self") for frame, _ in walk_tb(error.__traceback__))
    return next((owner for owner in owners if isinstance(owner, DistributedDataParallel)), None)


def _exception_advice(error: BaseException) -> str:
    if "cannot run on virtual ranks" in str(error):
        return ""
    for part, advice in ADVICE.items():
        if part in str(error):
            return advice
    if NEEDS_KERNELS.search(str(error)):
        return NO_GPU
    if NEEDS_DRIVER.search(str(error)):
        return NO_DRIVER if torch.cuda.is_available() else WITHOUT_GPUS  # with --gpu it is available
    if match := NOT_IN_GROUP.search(str(error)):
        rank = match[1]
        return (
            f"src and dst are global ranks, even in a group: for rank {rank} of the group, pass "
            f"dist.get_global_rank(group, {rank}), group_src={rank} or group_dst={rank}"
        )
    if [*walk_tb(error.__traceback__)][-1][0].f_code.co_filename.endswith(RULES):
        return REFUSED
    if "mark a variable ready only once" in str(error):
        return READY_TWICE
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"install {error.name} in the environment that runs ringlab, or add its folder to PYTHONPATH"
    if isinstance(error, FileNotFoundError):
        return "if another rank writes the file, call barrier between writing and reading"
    if isinstance(error, NotImplementedError) and not str(error):
        return "implement this line"
    return "correct this line first: on real processes, the other ranks wait for this one until the group's timeout"


def _own_advice(rank: Rank, error: BaseException) -> str:
    text, package = str(error), None
    for frame, _ in walk_tb(error.__traceback__):
        package = find_package(frame.f_code.co_filename) or package
    is_left_out = NO_GROUP in text and not rank.meetings and any(other.meetings for other in rank.job.ranks)
    if NOT_THIS_RANKS in text or (package is not None and (is_left_out or USED_BEFORE.search(text))):
        named = package or "PACKAGE"
        return f"if {named} keeps process-wide state, give each rank its own copy of the package: --own {named}"
    return ""


def _which_parameters(text: str) -> str:
    match = re.search(r"did not receive grad for rank \d+: ([^\n]+)", text)
    return f": {match[1].strip().rstrip('.')}" if match else ""


WRAP_LATER = (
    "wrap the module in DDP after you have replaced its layers, added its parameters and set requires_grad, "
    "then create the optimizer"
)


def find_unreduced(ddp: DistributedDataParallel, known: Iterable[torch.Tensor]) -> list[str]:
    """Return the names of the module's trainable parameters that are not in ``known`` or ``parameters_to_ignore``."""
    ids = set(map(id, known))
    ignored: set[str] = getattr(ddp, "parameters_to_ignore", set())
    return [
        name
        for name, parameter in ddp.module.named_parameters()
        if parameter.requires_grad and id(parameter) not in ids and name not in ignored
    ]


def name_unreduced(names: list[str]) -> str:
    """Return the first parameter's name and the number of other parameters, as text.

    >>> name_unreduced(["0.weight"]), name_unreduced(["2.weight", "2.bias"])
    ('the parameter 0.weight', 'the parameter 2.weight and 1 more')
    """
    return f"the parameter {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
