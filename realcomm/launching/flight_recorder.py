"""What NCCL has not done, as torch's flight recorder of its calls has it."""

import json
from typing import Any

FLIGHT_RECORDER = "flight recorder"  # the subject under which a rank tells of it


def describe_unfinished() -> str:
    """Return NCCL's oldest call that is not done; empty if there is none.

    >>> describe_unfinished()
    ''
    """
    from torch._C import _distributed_c10d

    dump = getattr(_distributed_c10d, "_dump_nccl_trace_json", None)  # where torch is built with NCCL
    found: dict[str, Any] = {} if dump is None else json.loads(dump(includeCollectives=True, onlyActive=True))
    for entry in found.get("entries", ()):
        if entry.get("state") != "completed":
            number, group = entry.get("collective_seq_id", "?"), entry.get("process_group", "?")
            return f"{entry.get('profiling_name', 'a call')}, number {number} of group {group}, is {entry.get('state')}"
    return ""
