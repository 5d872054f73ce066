"""Diagnose why a job hangs. The rules are tried in order, from the most specific to the most general."""

from collections.abc import Callable, Sequence
from difflib import get_close_matches

import networkx as nx

from collectives.units import count
from virtual.diagnosis.calls import (
    SAME_CALLS,
    all_locations,
    awaited_post,
    awaited_ranks,
    describe,
    find_extra_call,
    operation_name,
    report_collective_mismatch,
    report_message_mismatch,
    waiting_locations,
)
from virtual.diagnosis.exceptions import report_exception
from virtual.matching.posted import Posted
from virtual.ranks.finding import STARTER, FindingPlace, ProgramFinding, format_ranks, group_places, say_wait
from virtual.ranks.rank import Rank, RankJob, State
from virtual.ranks.sites import CallSite

# -- groups that ranks create differently

ALL_CREATE = "call new_group for every group on all ranks, including those that are not members"
ALL_EQUAL = "create all groups on all ranks, with the same members in the same order; keep the one you are a member of"


def find_mismatched_groups(job: RankJob) -> ProgramFinding | None:
    for made in zip(*(rank.made_groups for rank in job.ranks), strict=False):
        if len({frozenset(members) for members, _ in made}) > 1:
            pairs = [(rank.number, members) for rank, (members, _) in zip(job.ranks, made, strict=True)]
            are_own = all(number in members for number, members in pairs)
            title = (
                "each rank created only its own group" if are_own else "ranks created their groups in different orders"
            )
            return ProgramFinding("new_group", title, _creation_sites(job.ranks, made), ALL_EQUAL)
    return None


def find_missing_groups(job: RankJob) -> ProgramFinding | None:
    """Return a finding for a process group that some ranks never created. Call this after all ranks have exited."""
    fewest = min((len(rank.made_groups) for rank in job.ranks), default=0)
    creators = [rank for rank in job.ranks if len(rank.made_groups) > fewest]
    if not creators:
        return None
    made = [rank.made_groups[fewest] for rank in creators]
    members = made[0][0]
    same = format_ranks(rank.number for rank, (others, _) in zip(creators, made, strict=True) if others == members)
    without = format_ranks(rank.number for rank in job.ranks if rank not in creators)
    title = f"{without} did not create the group of {format_ranks(members)}, which {same} created"
    return ProgramFinding("new_group", title, _creation_sites(creators, made), ALL_CREATE)


def _creation_sites(ranks: list[Rank], made: Sequence[tuple[tuple[int, ...], CallSite]]) -> tuple[FindingPlace, ...]:
    return group_places(
        (rank.number, f"created a group of {format_ranks(members)}", site)
        for rank, (members, site) in zip(ranks, made, strict=True)
    )


# -- messages

EQUAL_MESSAGES = "match the number of sends and receives; do these ranks have different numbers of (micro-)batches?"


def find_nccl_queue_block(job: RankJob) -> ProgramFinding | None:
    """Return a finding for an operation that is queued behind an earlier one, because NCCL runs calls in order."""
    pending = [work.posted for rank in job.ranks for work in rank.unwaited.values()]
    posts = [*pending, *filter(None, map(awaited_post, job.ranks))]
    blocked = [(post, post.behind) for post in posts if post.behind is not None]
    if not blocked:
        return None
    first, head = blocked[0]
    title = (
        f"on {format_ranks([post.rank.number for post, _ in blocked])}, {describe(first)} ({first.site}) has not "
        f"started: it is queued behind {describe(head)} ({head.site}), and NCCL runs a communicator's calls in order"
    )
    together: dict[CallSite, list[Posted]] = {}
    for post in {before.rank.number: before for _, before in blocked}.values():
        together.setdefault(post.site, []).append(post)
    locations = tuple(
        FindingPlace(
            tuple(post.rank.number for post in heads),
            describe(heads[0]) if len(heads) == 1 else operation_name(heads[0].what),
            site,
            tuple(post.awaits for post in heads),
        )
        for site, heads in together.items()
    )
    advice = "pass both messages to one batch_isend_irecv; this program runs on gloo, but may hang on NCCL"
    return ProgramFinding("nccl order", title, locations, advice)


def find_unmatched_message(job: RankJob) -> ProgramFinding | None:
    """Return a finding for a send or receive that can never complete, because the peer has exited."""
    ended = {rank.number for rank in job.ranks if rank.state is State.DONE}
    pending = [(rank, post) for rank in job.ranks if (post := awaited_post(rank)) is not None and post.way != "calls"]
    lost = [(rank, post) for rank, post in pending if post.awaits and ended.issuperset(post.awaits)]
    if not lost:
        return None
    rank, post = min(lost, key=lambda pair: pair[1].way != "sends")
    number, peer, group = rank.number, post.awaits[0], post.group
    waiting = [other for other, its in pending if its.way == "receives" and number in its.awaits]
    if post.way == "sends" and waiting:
        title = (
            f"rank {number} sends to {format_ranks(post.awaits)}, which has exited, while "
            f"{say_wait(other.number for other in waiting)} for a message from rank {number}"
        )
        locations = waiting_locations([rank, *waiting])
        return ProgramFinding("peer", title, locations, "check the destination; is it off by one?")
    ends = (number, peer) if post.way == "sends" else (peer, number)
    met = group.met.get((group.places[ends[0]], group.places[ends[1]]), 0)
    if post.way == "sends":
        kind, title = "surplus message", f"rank {number} sends message {met + 1} to rank {peer}"
        title += f", which exited after receiving {met}"
    else:
        gone = [half for queue in group.sends.values() for half in queue if half.rank.number == peer]
        kind, title = "missing message", f"rank {number} waits for message {met + 1} from rank {peer}"
        title += f", which exited after sending {met}"
        title += f" and one to {format_ranks(gone[0].awaits)}" if gone else ""
    return ProgramFinding(kind, title, waiting_locations(_blocked_by(job, number)), EQUAL_MESSAGES)


def _blocked_by(job: RankJob, number: int) -> list[Rank]:
    """Return the rank with this number, and all ranks that wait for it directly or indirectly."""
    waits = nx.DiGraph((rank.number, other) for rank in job.ranks for other in awaited_ranks(rank))
    blocked = nx.ancestors(waits, number) - {number} if number in waits else set()
    return [job.ranks[other] for other in (number, *sorted(blocked))]


# -- ranks that wait for each other

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
    """Return a finding for ranks that wait for themselves, or for each other in a cycle."""
    by_number = {rank.number: rank for rank in job.ranks if rank.waiting is not None}
    on_itself = [number for number, rank in by_number.items() if number in awaited_ranks(rank)]
    if on_itself:
        post = awaited_post(by_number[on_itself[0]])
        verb, way = ("send", "to") if post is not None and post.way == "sends" else ("receive", "from")
        action = f"{verb}s {way} itself" if len(on_itself) == 1 else f"{verb} {way} themselves"
        locations = waiting_locations([by_number[number] for number in on_itself])
        return ProgramFinding("deadlock", f"{format_ranks(on_itself)} {action}", locations, WRONG_PEER)
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
    """Return a shortest cycle of the graph, starting at its smallest node, or [] if there is no cycle.

    >>> find_cycle(nx.DiGraph([(4, 0), (0, 2), (2, 1), (1, 0)])), find_cycle(nx.DiGraph([(0, 1)]))
    ([0, 2, 1], [])
    """
    paths = [
        [start, *nx.shortest_path(graph, following, start)[:-1]]
        for start in sorted(graph)
        for following in sorted(graph.successors(start))
        if nx.has_path(graph, following, start)
    ]
    return min(paths, key=len, default=[])


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


# -- ranks that exited, or never started

EQUAL_CALLS = (
    "make the same number of calls on all ranks: use the same number of batches (drop_last=True or Join), all_reduce "
    "the flag that ends the loop, and let no return, break or `if rank` skip a collective"
)
ONE_COUNTER = (
    "let either all ranks or none call optimizer.step() (all_reduce the flag), and count iterations, not each rank's "
    "steps, to decide when to call a collective"
)
BARRIER_KEY = "barrier_key"  # part of the store keys that c10d uses for barriers


def find_early_exit(job: RankJob) -> ProgramFinding | None:
    done = {rank.number for rank in job.ranks if rank.state is State.DONE}
    post = next((post for post in map(awaited_post, job.ranks) if post and done.intersection(post.awaits)), None)
    if post is None:
        return None
    group, ended = post.group, [number for number in post.awaits if number in done]
    counts = sorted({group.counts[group.places[number]] for number in ended})
    after = count(counts[0], "collective") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} collectives"
    title = (
        f"{format_ranks(ended)} exited after {after} of this group, and other ranks are blocked in "
        f"collective {group.counts[group.places[post.rank.number]]}"
    )
    by_call: dict[tuple[str, ...], list[int]] = {}
    for rank in job.ranks:
        if rank.number in ended:
            last = tuple(f"{call.what} at {call.site}" for call in list(rank.history)[-1:])
            by_call.setdefault(last, []).append(rank.number)
    locations = waiting_locations(job.ranks)
    locations += tuple(FindingPlace(tuple(numbers), "exited", before=last) for last, numbers in by_call.items())
    skipped, extra, advice = _find_skipped_step(job), find_extra_call(group), EQUAL_CALLS
    if skipped is not None:
        title, advice = f"{title}; {skipped}", ONE_COUNTER
    elif extra is not None:
        title, advice = f"{title}; {extra.text}", SAME_CALLS
    return ProgramFinding("early exit", title, locations, advice, time=group.world.calendar.now)


def _find_skipped_step(job: RankJob) -> str | None:
    """Describe the first optimizer step that only some ranks made. Return None if all ranks made the same steps."""
    for backwards in [*zip(*(rank.steps for rank in job.ranks), strict=False)][1:]:
        if len(set(backwards)) > 1:
            first = min(backwards)
            skipped = [rank.number for rank, step in zip(job.ranks, backwards, strict=True) if step > first]
            return f"{format_ranks(skipped)} skipped the optimizer step after backward pass {first}"
    return None


def find_missing_key(job: RankJob) -> ProgramFinding | None:
    waiting = [rank for rank in job.ranks if rank.waiting is not None and isinstance(rank.waiting.of, tuple)]
    if not waiting:
        return None
    keys = [str(key) for rank in waiting if rank.waiting is not None for key in rank.waiting.of]
    existing = [key for store in job.stores.values() for key in store if BARRIER_KEY not in key]
    close = get_close_matches(keys[0], existing, n=1)
    advice = f"did you mean {close[0]!r}, which is set?" if close else "set the key on one of the ranks"
    title = f"{say_wait(rank.number for rank in waiting)} for the store key {keys[0]!r}, which no rank sets"
    locations = waiting_locations(waiting) + all_locations([rank for rank in job.ranks if rank not in waiting])
    return ProgramFinding("store key", title, locations, advice)


def find_missing_ranks(job: RankJob) -> ProgramFinding | None:
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


def find_collective_mismatch(job: RankJob) -> ProgramFinding | None:
    collectives = [collective for group in job.groups.values() for collective in group.collectives.values()]
    mismatched = [collective for collective in collectives if collective.is_mismatched]
    return report_collective_mismatch(min(mismatched, key=lambda collective: collective.key)) if mismatched else None


RULES: tuple[Callable[[RankJob], ProgramFinding | None], ...] = (
    find_collective_mismatch,
    find_missing_ranks,
    find_mismatched_groups,
    find_nccl_queue_block,
    find_unmatched_message,
    find_wait_cycle,
    find_early_exit,
    find_missing_key,
)


def diagnose_hang(job: RankJob) -> ProgramFinding:
    """Return the finding of the first rule that explains why the job hangs."""
    for rule in RULES:
        finding = rule(job)
        if finding is not None:
            return finding
    waiting = [rank.number for rank in job.ranks if rank.state is not State.DONE]
    title = f"{say_wait(waiting)}, and no rank can continue"
    return ProgramFinding("deadlock", title, all_locations(job.ranks))


class ProgramDiagnoser:
    hang = staticmethod(diagnose_hang)
    mismatched_calls = staticmethod(report_collective_mismatch)
    mismatched_message = staticmethod(report_message_mismatch)
    exception = staticmethod(report_exception)
