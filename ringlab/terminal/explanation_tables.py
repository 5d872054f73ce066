"""What ``explain`` prints: lines as of NCCL_DEBUG=INFO, and the tables of its tuner."""

from itertools import groupby

from rich.console import Console

from collectives.units import count, format_size, format_time
from ringlab.answers.explanation import ClusterExplained, Explanation, Option, SizeExplained, find_better
from ringlab.table import Format, Row, format_or_dash, format_ratio, make_table, time_unit

MOST_DRAWN = 64  # ranks of a ring that are written out
LEGEND = (
    '"our time" is a candidate\'s on the GPUs alone; the time of what NCCL picks is a mean over the candidates, by how '
    "near the tuner has them, with the launch and what was measured on such hosts"
)
MOST_GPUS = 8  # of a host whose paths are shown as a table
WORDS = {  # of nvidia-smi topo -m, and of NCCL's log
    "NV": "NVLink",
    "XGMI": "xGMI",  # of rocm-smi --showtopo
    "PIX": "behind one PCIe switch",
    "PHB": "on ports of one CPU",
    "SYS": "on two CPUs",
    "P2P": "one GPU writes into the other's memory",
    "SHM": "through host memory",
}


def show_explanation(answer: Explanation, console: Console) -> None:
    """Print of each cluster what NCCL sees, its rings and trees, its choice at each size, and all candidates."""
    for cluster in answer.clusters:
        console.print(cluster.title, style="bold")
        for line in cluster.system:
            console.print(f"  {line}", soft_wrap=True)
        _show_paths(cluster, console)
        trees = (
            _tree_lines(cluster) if answer.collective == "all_reduce" else []
        )  # the only one that NCCL has trees for
        for line in (*_ring_lines(cluster), *trees):
            console.print(f"  {line}", soft_wrap=True)
        console.print()
        console.print(_choices(answer.collective, cluster))
        for size in cluster.sizes:
            if size.options:
                console.print(_candidates(size))
        if any(size.options for size in cluster.sizes):
            console.print(f"  {LEGEND}", soft_wrap=True)
        for line in (*_closed(cluster), *_better(cluster), *(f"note: {note}" for note in cluster.notes)):
            console.print(f"  {line}", soft_wrap=True)


def _show_paths(cluster: ClusterExplained, console: Console) -> None:
    """Print how the GPUs of a host talk, each pair where not all talk alike, with the words in plain English."""
    kinds = sorted({path for row in cluster.paths for path in row if path != "X"})
    if len(kinds) > 1 and len(cluster.paths) <= MOST_GPUS:
        rows = [[f"GPU{number}", *row] for number, row in enumerate(cluster.paths)]
        headings = ["", *(f"GPU{number}" for number in range(len(cluster.paths)))]
        console.print(make_table("Paths inside a host", headings, rows, words=len(headings)))
        words = dict.fromkeys(word for kind in kinds for word in kind.split())
        console.print(f"  {'; '.join(f'{word}: {WORDS[word]}' for word in words)}", soft_wrap=True)
    elif kinds:
        said = [", ".join(f"{WORDS[word]} ({word})" for word in kind.split()) for kind in kinds]
        console.print(f"  every two GPUs of a host: {', or '.join(said)}", soft_wrap=True)


def _ring_lines(cluster: ClusterExplained) -> list[str]:
    """Return the rings as NCCL's log has them, with a bar between nodes."""
    lines = [f"{count(cluster.channels, 'channel')} over these rings and trees in turn (> inside, ==> between nodes):"]
    for number, ring in enumerate(cluster.rings):
        shown = ring[:MOST_DRAWN]
        nodes = [list(ranks) for _, ranks in groupby(shown, key=lambda rank: rank // cluster.ranks_per_node)]
        text = " ==> ".join(" > ".join(map(str, ranks)) for ranks in nodes)
        more = f" > ... {len(ring) - len(shown)} more" if len(shown) < len(ring) else ""
        lines.append(f"ring {number}: {text}{more}{' ==> ' if len(nodes) > 1 else ' > '}{ring[0]}")
    return lines


def _tree_lines(cluster: ClusterExplained) -> list[str]:
    """Return the trees, indented by depth, with a line for each chain of ranks that have one child each."""
    lines = []
    for number, tree in enumerate(cluster.trees):
        children: dict[int | None, list[int]] = {}
        for rank, parent in tree:
            children.setdefault(parent, []).append(rank)
        near = _nearest_ranks(children, MOST_DRAWN)
        drawn = {parent: [rank for rank in ranks if rank in near] for parent, ranks in children.items()}
        lines.append(f"tree {number}, a < b where b sends its sum to a:")
        lines += [f"  {line}" for root in drawn[None] for line in _draw_tree(root, drawn, "")]
        lines += [f"  ... {len(tree) - len(near)} more"] if len(near) < len(tree) else []
    return lines


def _nearest_ranks(children: dict[int | None, list[int]], most: int) -> set[int]:
    """Return the ranks nearest to the roots, at most so many."""
    order = list(children[None])
    for rank in order:
        if len(order) >= most:
            break
        order += children.get(rank, [])
    return set(order[:most])


def _draw_tree(root: int, children: dict[int | None, list[int]], indent: str) -> list[str]:
    chain = [root]
    while len(below := children.get(chain[-1], [])) == 1:
        chain.append(below[0])
    lines = [f"{indent}{' < '.join(map(str, chain))}"]
    for child in children.get(chain[-1], []):
        lines += _draw_tree(child, children, f"{indent}    ")
    return lines


def _choices(collective: str, cluster: ClusterExplained) -> object:
    unit, form = time_unit(size.time_s for size in cluster.sizes)
    rows: list[Row] = [
        [
            format_size(size.bytes), size.algorithm, size.protocol, _channels(size), form(size.time_s),
            " to ".join(map(form, size.interval_s)), format_ratio(size.busbw_GBps),
        ]
        for size in cluster.sizes
    ]  # fmt: skip
    headings = [
        "size",
        "algorithm",
        "protocol",
        "channels",
        f"time\n({unit})",
        f"80 % interval\n({unit})",
        "busbw\n(GB/s)",
    ]
    return make_table(f"{collective}: what NCCL picks", headings, rows, words=3)


def _channels(size: SizeExplained) -> str:
    return str(size.channels) if size.options else "-"  # of messages between pairs the model knows none


def _candidates(size: SizeExplained) -> object:
    candidates = [option for option in size.options if option.tuner_s is not None]
    unit, form = time_unit(seconds for one in candidates for seconds in (one.tuner_s, one.time_s))
    rows = [_candidate(option, form) for option in candidates]
    headings = ["", "algorithm", "protocol", f"tuner's time\n({unit})", f"our time\n({unit})", "why"]
    return make_table(f"Candidates at {format_size(size.bytes)}", headings, rows, words=3)


def _candidate(option: Option, form: Format) -> Row:
    mark = ">" if option.is_chosen else ""
    times = [format_or_dash(value, form) for value in (option.tuner_s, option.time_s)]
    return [mark, option.algorithm, option.protocol, *times, option.reason]


def _closed(cluster: ClusterExplained) -> list[str]:
    """Return the candidates that NCCL cannot take here, by reason: it is the same at all sizes."""
    closed = [one for size in cluster.sizes[:1] for one in size.options if one.tuner_s is None]
    by_reason: dict[str, list[str]] = {}
    for one in closed:
        by_reason.setdefault(one.reason, []).append(f"{one.algorithm}/{one.protocol}")
    return [f"not {', '.join(names)}: {reason}" for reason, names in by_reason.items()]


def _better(cluster: ClusterExplained) -> list[str]:
    """Return what would be faster by our model than what NCCL picks, a line a size."""
    lines = []
    for size in cluster.sizes:
        if (better := find_better(size)) is not None and better.time_s is not None:
            lines.append(
                f"at {format_size(size.bytes)} our model finds {better.algorithm}/{better.protocol} faster than the "
                f"tuner's {size.algorithm}/{size.protocol}: {format_time(better.time_s)}"
            )
    return lines
