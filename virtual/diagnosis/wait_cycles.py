"""Find wait-for cycles between ranks."""

import networkx as nx

from virtual.diagnosis.locations import awaited_post, awaited_ranks, waiting_locations
from virtual.matching.posted import Posted
from virtual.ranks.finding import ProgramFinding, format_ranks, say_wait
from virtual.ranks.rank import Rank, RankJob

RECEIVE_FIRST = "let one rank of each pair send first, call irecv before send, or pass both to batch_isend_irecv"
SEND_FIRST = (
    "send may block until the message is received: let one rank of each pair receive first, "
    "or post both directions before waiting (isend and irecv, or batch_isend_irecv)"
)
GROUP_ORDER = "call the collectives of all groups in the same order on all ranks, for example in order of creation"
WRONG_PEER = "check the peer: if rank A sends to rank B, then rank B must receive from rank A"
SHOWN_MESSAGES = 4
ACROSS_COLLECTIVE = "call both send and recv before the collective, or both after it"


def find_wait_cycle(job: RankJob) -> ProgramFinding | None:
    """Return a finding for ranks that wait for each other: a shortest cycle, and all ranks blocked behind it."""
    by_number = {rank.number: rank for rank in job.ranks if rank.waiting is not None}
    on_itself = [number for number, rank in by_number.items() if number in awaited_ranks(rank)]
    if on_itself:
        post = awaited_post(by_number[on_itself[0]])
        sends = post is not None and post.way == "sends"
        doing = (
            ("sends to itself", "send to themselves") if sends else ("receives from itself", "receive from themselves")
        )
        title = f"{format_ranks(on_itself)} {doing[len(on_itself) > 1]}"
        locations = waiting_locations([by_number[number] for number in on_itself])
        return ProgramFinding("deadlock", title, locations, WRONG_PEER)
    graph: nx.DiGraph[int] = nx.DiGraph()
    for number, rank in by_number.items():
        graph.add_edges_from((number, other) for other in awaited_ranks(rank) if other in by_number)
    cycle = find_cycle(graph)
    if not cycle:
        return None
    in_cycles = {number for part in nx.strongly_connected_components(graph) if len(part) > 1 for number in part}
    blocked = sorted(in_cycles.union(*(nx.ancestors(graph, number) for number in in_cycles)))
    kind, title, advice = _classify([by_number[number] for number in sorted(in_cycles)])
    rest = f"; {say_wait(set(blocked) - in_cycles)} for them" if len(blocked) > len(in_cycles) else ""
    locations = waiting_locations([by_number[number] for number in blocked])
    return ProgramFinding(kind, title + rest, locations, advice, tuple(cycle))


def find_cycle(graph: "nx.DiGraph[int]") -> list[int]:
    """Return a shortest cycle of the graph, starting at its smallest node; an empty list if there is none.

    >>> find_cycle(nx.DiGraph([(4, 0), (0, 2), (2, 1), (1, 0)])), find_cycle(nx.DiGraph([(0, 1)]))
    ([0, 2, 1], [])
    """
    shortest: list[int] = []
    for start in sorted(graph):
        for following in sorted(graph.successors(start)):
            if nx.has_path(graph, following, start):
                path = nx.shortest_path(graph, following, start)
                if not shortest or len(path) < len(shortest):
                    shortest = [start, *path[:-1]]
    return shortest


def _classify(members: list[Rank]) -> tuple[str, str, str]:
    posts = [post for post in map(awaited_post, members) if post is not None]
    ways = {post.way for post in posts}
    who = format_ranks([rank.number for rank in members])
    if ways == {"receives"}:
        unclaimed = _find_unclaimed(posts)
        if unclaimed:
            return "deadlock", f"{who} wait for messages that nobody has sent: {'; '.join(unclaimed)}", WRONG_PEER
        return "deadlock", f"{who} all receive first, and no rank has sent", RECEIVE_FIRST
    if ways == {"sends"}:
        crossed = next(filter(None, map(_find_crossed, posts)), None)
        if crossed is not None:
            return "deadlock", f"{who} wait for each other: {crossed}", WRONG_PEER
        return "deadlock", f"{who} all send first, and no rank receives", SEND_FIRST
    if ways == {"calls"}:
        names = ", ".join(sorted({f"{post.group.name} of {format_ranks(post.group.ranks)}" for post in posts}))
        title = f"{who} wait for each other in collectives of different groups ({names})"
        return "group order", title, GROUP_ORDER
    advice = ACROSS_COLLECTIVE if "calls" in ways else RECEIVE_FIRST
    return "deadlock", f"{who} wait for each other in a cycle", advice


def _find_unclaimed(posts: list[Posted]) -> list[str]:
    sources = {post.rank.number: post.awaits for post in posts}
    queues = [queue for group in {post.group for post in posts} for queue in group.sends.values()]
    sent = [(half, half.peer_in_world) for queue in queues for half in queue]
    messages = [
        f"rank {half.rank.number} has sent to rank {peer}, which receives from {format_ranks(sources[peer])}"
        for half, peer in sent
        if peer in sources and half.rank.number in sources and half.rank.number not in sources[peer]
    ]
    return messages[:SHOWN_MESSAGES] + ["..."] * (len(messages) > SHOWN_MESSAGES)


def _find_crossed(post: Posted) -> str | None:
    sender = post.rank.number
    for source, place, _ in (key for key, queue in post.group.receives.items() if queue):
        receiver = post.group.ranks[place]
        if receiver in post.awaits and source is not None and post.group.ranks[source] != sender:
            return f"rank {sender} sends to rank {receiver}, which receives from rank {post.group.ranks[source]}"
    return None
