"""Write output in the formats of nccl-tests, with times that a test chooses."""

from collections.abc import Sequence

from collectives.costs.bounds import bus_factor

HEAD = """# nccl-tests version 2.17.6 nccl-headers=22809 nccl-library=22809
# Collective test starting: {program}
# nThread 1 nGpus {per_process} minBytes 8 maxBytes 1073741824 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 \
validation: 1 graph: 0 unalign: 0
#
# Using devices
{devices}
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
"""
TAIL = """# Out of bounds values : 0 OK
# Avg bus bandwidth    : 12.3
#
# Collective test concluded: {program}
#
"""
Rows = Sequence[tuple[int, float]]  # bytes and microseconds


def printed(value: float, width: int) -> str:
    """Return a number with two decimals, or with fewer if they do not fit."""
    fitting = (f"{value:.{decimals}f}" for decimals in (2, 1, 0))
    return next((text for text in fitting if len(text) <= width), f"{value:.1e}")


def table(
    rows: Rows,
    collective: str = "all_reduce",
    hosts: int = 1,
    gpus: int = 8,
    per_process: int = 8,
    gpu: str = "NVIDIA A100-SXM4-80GB",
) -> str:
    program = {"all_to_all": "alltoall", "send_recv": "sendrecv"}.get(collective, collective) + "_perf"
    devices = "\n".join(
        f"#  Rank {rank:2d} Group  0 Pid {1000 + rank // per_process:6d} on host{rank // gpus:02d} device "
        f"{rank % gpus:2d} [0000:{rank % gpus:02x}:00] {gpu}"
        for rank in range(hosts * gpus)
    )
    lines = [table_row(nbytes, us, collective, hosts * gpus) for nbytes, us in rows]
    head = HEAD.format(program=program, devices=devices, per_process=per_process)
    return head + "\n".join(lines) + "\n" + TAIL.format(program=program)


def table_row(nbytes: int, us: float, collective: str, ranks: int) -> str:
    body = figures(nbytes, us, collective, ranks) + f"  {0:6g}"
    return f"{nbytes:12d}  {count(nbytes, collective, ranks):12d}  {'float':>8}  {'sum':>6}  {-1:6d}{body}{body}"


def figures(nbytes: int, us: float, collective: str, ranks: int) -> str:
    algbw = nbytes / us / 1e3  # GB/s
    return f"  {printed(us, 7):>7}  {printed(algbw, 6):>6}  {printed(algbw * bus_factor(collective, ranks), 6):>6}"


def count(nbytes: int, collective: str, ranks: int) -> int:
    """Return the number of 4-byte elements that NCCL is called with."""
    shared = collective in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter", "hypercube")
    return nbytes // 4 // (ranks if shared else 1)


OLD_HEAD = """# nThread 1 nGpus {ranks} minBytes 8 maxBytes 1073741824 step: 2(factor) iters: 20 validation: 1
#
# Using devices
{devices}
#
#                                                              out-of-place                       in-place
# {names}
#
"""
FORMS = {  # of 2017, by collective: what describes the call, and the columns of a side; of 2022; with -M; of a replay
    "2017": ("size count type", "time algbw busbw error", ""),
    "2017 reduce": ("size count type redop root", "time algbw busbw error", ""),
    "2020 alltoall": ("size count type redop", "time algbw busbw error", ""),
    "2022": ("size count type redop root", "time algbw busbw #wrong", ""),
    "unchecked": ("size count type redop root", "time algbw busbw #wrong", ""),
    "stamped": ("size count type redop root", "time algbw busbw #wrong", "timestamp"),
    "each": ("size count type redop root", "time algbw busbw #wrong i_min i_max i_p99 i_cv%", ""),
    "in place": ("size count type redop root", "time algbw busbw #wrong", ""),
}
CELLS = {
    "type": "float",
    "redop": "sum",
    "root": "-1",
    "error": "2e-07",
    "#wrong": "0",
    "timestamp": "2026-01-02 03:04:05",
}


def form_table(form: str, rows: Rows, collective: str = "all_reduce", ranks: int = 8) -> str:
    """Return the table of an older version or of a run with other options, which ``form`` selects."""
    describing, side, after = FORMS[form]
    devices = "\n".join(
        f"#   Rank {rank:2d} Pid   4711 on       node device {rank:2d} [0x{rank:02x}] Tesla V100"
        for rank in range(ranks)
    )
    names = " ".join([describing, side, side, after])
    lines = []
    for nbytes, us in rows:
        cells = {**CELLS, "size": str(nbytes), "count": str(count(nbytes, collective, ranks))}
        cells["redop"] = "" if form == "2020 alltoall" else cells["redop"]
        cells["#wrong"] = "N/A" if form == "unchecked" else "0"
        first = "  ".join(cells[name] for name in describing.split())
        rest = "  ".join(cells.get(name, "1.25") for name in side.split()[3:])
        bodies = [f"{figures(nbytes, time, collective, ranks)}  {rest}" for time in (us, 1.1 * us)]
        bodies[0] = " " * 32 if form == "in place" else bodies[0]
        lines.append("  ".join([first, *bodies, cells["timestamp"] if after else ""]))
    head = OLD_HEAD.format(ranks=ranks, devices=devices, names=names)
    return head + "\n".join(lines) + "\n" + TAIL.partition("# Coll")[0]
