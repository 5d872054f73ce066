"""Ranks that wait for each other in a circle."""

import networkx as nx

from virtual.diagnosis.places import awaited, awaited_post, waiting_places
from virtual.matching.posted import Posted
from virtual.ranks.finding import ProgramFinding, format_ranks, say_wait
from virtual.ranks.rank import Rank, RankJob

RECEIVE_FIRST = "let one side of each pair send first, or post irecv before send, or give both to batch_isend_irecv"
SEND_FIRST = (
    "a send may return only when it is received: let one side of each pair receive first, "
    "or post both directions before either is waited for (isend and irecv, batch_isend_irecv)"
)
GROUP_ORDER = "call the collectives of all groups in one order on all ranks, such as by the number of the group"
OTHER_RANK = "name the other rank of the pair: what one sends to a rank, that rank receives from it"
ELSEWHERE = "move the message before the collective on both ranks, or behind it on both"


def tell_circle(job: RankJob) -> ProgramFinding | None:
    """Tell of ranks that wait for each other, with a shortest circle of them, and of all who wait for them."""
    by_number = {rank.number: rank for rank in job.ranks if rank.waiting is not None}
    alone = [number for number, rank in by_number.items() if number in awaited(rank)]
    if alone:
        post = awaited_post(by_number[alone[0]])
        sends = post is not None and post.way == "sends"
        doing = (
            ("sends to itself", "send to themselves") if sends else ("receives from itself", "receive from themselves")
        )
        title = f"{format_ranks(alone)} {doing[len(alone) > 1]}"
        return ProgramFinding("deadlock", title, waiting_places([by_number[one] for one in alone]), OTHER_RANK)
    graph: nx.DiGraph[int] = nx.DiGraph()
    for number, rank in by_number.items():
        graph.add_edges_from((number, other) for other in awaited(rank) if other in by_number)
    circle = find_circle(graph)
    if not circle:
        return None
    knots = {number for knot in nx.strongly_connected_components(graph) if len(knot) > 1 for number in knot}
    held = sorted(knots.union(*(nx.ancestors(graph, number) for number in knots)))
    kind, title, advice = _name([by_number[number] for number in sorted(knots)])
    rest = f"; {say_wait(set(held) - knots)} for them" if len(held) > len(knots) else ""
    places = waiting_places([by_number[number] for number in held])
    return ProgramFinding(kind, title + rest, places, advice, tuple(circle))


def find_circle(graph: "nx.DiGraph[int]") -> list[int]:
    """Return the nodes of a shortest circle from its smallest node on, each before the one that it points to.

    >>> find_circle(nx.DiGraph([(4, 0), (0, 2), (2, 1), (1, 0)])), find_circle(nx.DiGraph([(0, 1)]))
    ([0, 2, 1], [])
    """
    found: list[int] = []
    for start in sorted(graph):
        for following in sorted(graph.successors(start)):
            if nx.has_path(graph, following, start):
                path = nx.shortest_path(graph, following, start)
                if not found or len(path) < len(found):
                    found = [start, *path[:-1]]
    return found


def _name(members: list[Rank]) -> tuple[str, str, str]:
    """Return the kind of a circle, what to say of it, and what to change."""
    posts = [post for post in map(awaited_post, members) if post is not None]
    ways = {post.way for post in posts}
    who = format_ranks([rank.number for rank in members])
    if ways == {"receives"}:
        return "deadlock", f"{who} all receive first, and nobody has sent", RECEIVE_FIRST
    if ways == {"sends"}:
        crossed = next(filter(None, map(_find_crossed, posts)), None)
        if crossed is not None:
            return "deadlock", f"{who} wait for each other: {crossed}", OTHER_RANK
        return "deadlock", f"{who} all send first, and nobody receives", SEND_FIRST
    if ways == {"calls"}:
        names = ", ".join(sorted({_group_name(post) for post in posts}))
        title = f"{who} are each in a collective of another group ({names}) and wait for each other"
        return "group order", title, GROUP_ORDER
    return "deadlock", f"{who} wait for each other in a circle", ELSEWHERE if "calls" in ways else RECEIVE_FIRST


def _find_crossed(post: Posted) -> str | None:
    """Return that a rank sends to one that receives from another; None where that one receives from nobody."""
    sender = post.rank.number
    for source, place, _ in (key for key, queue in post.group.receives.items() if queue):
        receiver = post.group.ranks[place]
        if receiver in post.awaits and source is not None and post.group.ranks[source] != sender:
            return f"rank {sender} sends to rank {receiver}, which receives from rank {post.group.ranks[source]}"
    return None


def _group_name(post: Posted) -> str:
    return f"{post.group.name} of {format_ranks(post.group.ranks)}"
