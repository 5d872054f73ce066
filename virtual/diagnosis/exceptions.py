"""Report an exception that ended a rank, and parameters that DDP does not reduce."""

import os
import re
from collections.abc import Iterable
from traceback import walk_tb

import torch
from torch.nn.parallel import DistributedDataParallel

from virtual.diagnosis.calls import all_locations
from virtual.ranks.finding import FindingPlace, ProgramFinding, format_ranks
from virtual.ranks.rank import Rank
from virtual.ranks.sites import find_package

UNUSED = "use every parameter in the loss, remove the unused ones, or pass find_unused_parameters=True"
STATIC = (
    "replace static_graph=True with find_unused_parameters=True: with a static graph, the loss must use every output "
    "of forward, and the same parameters in each iteration"
)
UNUSED_TEXTS = ("finished reduction in the prior iteration", "training graph has changed")  # parts of DDP's errors
WRAP_LATER = (
    "wrap the module in DDP after you have replaced its layers, added its parameters and set requires_grad, "
    "then create the optimizer"
)
CORRECT = "correct this line first: on real processes, the other ranks wait for this one until the group's timeout"
REFUSED = "the backend rejects these arguments on every rank that passes them, before it communicates: change them"
RULES = f"c10d{os.sep}backend_rules.py"  # the file that raises these errors
NO_DRIVER = "driver calls cannot run on virtual ranks, whose GPUs have no driver: remove these calls"
WITHOUT_GPUS = "run the program with --gpu, which provides virtual CUDA devices"
ADVICE = {
    "cannot run on virtual ranks": "",
    "No backend type associated with device type cpu": "move the tensor to the rank's GPU first, or "
    'create a group for both devices: init_process_group("cpu:gloo,cuda:nccl")',
    "Duplicate GPU detected": "give each rank its own GPU: call torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) "
    "before you move anything to CUDA, or name the GPU in every device: f'cuda:{{local_rank}}'",
    "invalid device ordinal": "GPUs are numbered from 0 on each machine: use LOCAL_RANK, not RANK",
    "only work with single-device": "move the module to the rank's GPU before you wrap it; on CPUs, omit device_ids",
    "Invalid scalar type": "gloo supports float16, bfloat16, float32, float64, bool, uint8, int8, int32 and int64: "
    "convert the tensor first; to only copy it, pass its bytes: tensor.view(torch.uint8)",
    "libcuda|CUDA_HOME|cpu tensor": "custom CUDA or Triton kernels and symmetric memory cannot run on virtual ranks, "
    "whose GPUs compute on the CPU: use torch operators instead",
    "CUDA (?:driver|error)|NVIDIA driver|not compiled with CUDA": "{driver}",
    r"Global rank (\d+) is not part of group": "src and dst are global ranks, even in a group: for rank {0} of the "
    "group, pass dist.get_global_rank(group, {0}), group_src={0} or group_dst={0}",
    "mark a variable ready only once": "return the tensors of forward in a tuple, a list or a dict, in which DDP can "
    "find them; checkpoint activations with use_reentrant=False",
    r"^ModuleNotFoundError: No module named '([^']+)'": "install {0} in the environment that runs ringlab, or add its "
    "folder to PYTHONPATH",
    "^FileNotFoundError: ": "if another rank writes the file, call barrier between writing and reading",
    "^NotImplementedError: $": "implement this line",
}  # by a pattern of the exception's type and message; {0} is the pattern's group
NOT_THIS_RANKS = "is not initialized in the world group map"  # part of c10d's message about a group of other ranks
NO_GROUP = "process group has not been initialized"  # c10d's message
USED_BEFORE = re.compile(r"\balready (been )?(initiali[sz]ed|registered|set|created)")  # as packages say it
SHOWN_LINES = 6  # lines of an exception's message


def report_exception(rank: Rank, error: BaseException) -> ProgramFinding:
    """Return a finding for an exception that ended a rank, with the locations of the other ranks."""
    lines = str(error).strip().splitlines()[:SHOWN_LINES]
    text = "\n      ".join([f"raised {type(error).__name__}" + (f": {lines[0]}" if lines else ""), *lines[1:]])
    place = FindingPlace((rank.number,), text, rank.ended_at)
    locations = (place, *all_locations(other for other in rank.job.ranks if other is not rank))
    if any(text in str(error) for text in UNUSED_TEXTS):
        return _report_unused_parameters(rank, error, locations)
    title = f"{format_ranks([rank.number])} raised {type(error).__name__}"
    advice = (_own_advice(rank, error) or _find_advice(error)) if len(rank.job.ranks) > 1 else ""
    return ProgramFinding("exception", title, locations, advice)


def _report_unused_parameters(rank: Rank, error: BaseException, locations: tuple[FindingPlace, ...]) -> ProgramFinding:
    owners = (frame.f_locals.get("self") for frame, _ in walk_tb(error.__traceback__))
    ddp = next((owner for owner in owners if isinstance(owner, DistributedDataParallel)), None)
    replaced = [] if ddp is None else find_unreduced(ddp, ddp._module_parameters)
    if replaced:
        title = f"DDP does not know {name_unreduced(replaced)} of rank {rank.number}'s module"
        return ProgramFinding("not in DDP", title, locations, WRAP_LATER)
    title = f"DDP on rank {rank.number} waits for gradients of parameters that the loss does not depend on"
    names = re.search(r"did not receive grad for rank \d+: ([^\n]+)", str(error))
    title += f": {names[1].strip().rstrip('.')}" if names else ""
    advice = STATIC if "static_graph" in str(error) else UNUSED
    return ProgramFinding("unused parameters", title, locations, advice)


def _find_advice(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}"
    for pattern, advice in ADVICE.items():
        if match := re.search(pattern, text):
            driver = NO_DRIVER if torch.cuda.is_available() else WITHOUT_GPUS  # with --gpu it is available
            return advice.format(*match.groups(), driver=driver)
    is_refused = [*walk_tb(error.__traceback__)][-1][0].f_code.co_filename.endswith(RULES)
    return REFUSED if is_refused else CORRECT


def _own_advice(rank: Rank, error: BaseException) -> str:
    text, package = str(error), None
    for frame, _ in walk_tb(error.__traceback__):
        package = find_package(frame.f_code.co_filename) or package
    is_left_out = NO_GROUP in text and not rank.meetings and any(other.meetings for other in rank.job.ranks)
    if NOT_THIS_RANKS in text or (package is not None and (is_left_out or USED_BEFORE.search(text))):
        named = package or "PACKAGE"
        return f"if {named} keeps process-wide state, give each rank its own copy of the package: --own {named}"
    return ""


def find_unreduced(ddp: DistributedDataParallel, known: Iterable[torch.Tensor]) -> list[str]:
    """Return the names of a DDP module's trainable parameters that are neither in ``known`` nor ignored by DDP."""
    ids = set(map(id, known))
    ignored: set[str] = getattr(ddp, "parameters_to_ignore", set())
    return [
        name
        for name, parameter in ddp.module.named_parameters()
        if parameter.requires_grad and id(parameter) not in ids and name not in ignored
    ]


def name_unreduced(names: list[str]) -> str:
    """Return text such as "the parameter 2.weight and 1 more"."""
    return f"the parameter {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
