"""What NCCL has not done, as torch's flight recorder of its calls has it."""

import json
from typing import Any

FLIGHT_RECORDER = "flight recorder"  # the subject under which a rank tells of it
MESSAGES = ("nccl:send", "nccl:recv")  # how names of single messages begin


def describe_unfinished() -> str:
    """Return NCCL's oldest call that is not done; empty if there is none.

    Messages that are posted as one group are one call, "nccl:coalesced". Torch lists each of them too, but never
    learns its state, so it stays "scheduled" for ever and is left out.

    >>> describe_unfinished()
    ''
    """
    from torch._C import _distributed_c10d

    dump = getattr(_distributed_c10d, "_dump_nccl_trace_json", None)  # where torch is built with NCCL
    found: dict[str, Any] = {} if dump is None else json.loads(dump(includeCollectives=True, onlyActive=True))
    for entry in found.get("entries", ()):
        name, state = entry.get("profiling_name", "a call"), entry.get("state")
        if state == "completed" or (state == "scheduled" and name.startswith(MESSAGES)):
            continue
        number = entry.get("p2p_seq_id" if entry.get("is_p2p") else "collective_seq_id", "?")
        group, *_ = entry.get("process_group", "?")  # its name and its description
        return f"{name}, number {number} of group {group}, is {state}"
    return ""
