"""Messages that do not meet: other tags, peers, numbers and sizes, and the order in which NCCL does them."""

from collections.abc import Iterator

from virtual.diagnosis.places import awaited_post, describe, verb_of, waiting_places
from virtual.matching.group import VirtualGroup
from virtual.matching.posted import Posted, PostedHalf
from virtual.ranks.finding import FindingPlace, ProgramFinding, format_ranks, say_wait
from virtual.ranks.rank import Rank, RankJob, State
from virtual.ranks.sites import CallSite


def tell_unlike_halves(sender: PostedHalf, receiver: PostedHalf) -> ProgramFinding:
    """Tell of a message that is received into a tensor of another size or type."""
    sent, received = sender.tensors[0], receiver.tensors[0]
    what = "type" if sent.numel() == received.numel() else "size"
    title = f"rank {receiver.rank.number} receives into a tensor of another {what} than rank {sender.rank.number} sends"
    places = tuple(FindingPlace((half.rank.number,), describe(half), half.site) for half in (sender, receiver))
    advice = "make both tensors of one shape and type; where the receiver cannot know the size, send it first"
    return ProgramFinding("message size", title, places, advice, time=sender.group.world.calendar.now)


def tell_nccl_order(job: RankJob) -> ProgramFinding | None:
    """Tell of a message that has not begun, as NCCL does those of a communicator in the order of their calls."""
    held = [(post, post.behind) for rank in job.ranks for post in _posted_by(rank) if post.behind is not None]
    if not held:
        return None
    first, head = held[0]
    title = (
        f"on {format_ranks([post.rank.number for post, _ in held])} {describe(first)} ({first.site}) has not begun: it "
        f"queues behind {describe(head)} ({head.site}), as NCCL does the calls of a communicator one after the other"
    )
    together: dict[CallSite, list[Posted]] = {}
    for post in {before.rank.number: before for _, before in held}.values():
        together.setdefault(post.site, []).append(post)
    places = tuple(_heads(posts) for posts in together.values())
    advice = "give both messages to one batch_isend_irecv; on gloo this program runs, on NCCL it may hang"
    return ProgramFinding("nccl order", title, places, advice)


def _heads(posts: list[Posted]) -> FindingPlace:
    numbers = tuple(post.rank.number for post in posts)
    what = describe(posts[0]) if len(posts) == 1 else verb_of(posts[0].what)
    return FindingPlace(numbers, what, posts[0].site, tuple(post.awaits for post in posts))


def _posted_by(rank: Rank) -> list[Posted]:
    """Return what a rank has posted that is not done: what it waits for, and what it has not waited for yet."""
    found = [work.posted for work in rank.unwaited.values()]
    waited_for = awaited_post(rank)
    return found if waited_for is None else [*found, waited_for]


def tell_tags(job: RankJob) -> ProgramFinding | None:
    """Tell of a message that is sent with one tag, and received with another."""
    for group in job.groups.values():
        for sender, receiver in _left_pairs(group):
            if sender.tag != receiver.tag:
                title = (
                    f"rank {sender.rank.number} sends with tag {sender.tag}, and rank {receiver.rank.number} "
                    f"receives with tag {receiver.tag}"
                )
                places = tuple(
                    FindingPlace((half.rank.number,), describe(half), half.site, (half.awaits,))
                    for half in (sender, receiver)
                )
                return ProgramFinding("tag", title, places, "give both the same tag")
    return None


def _left_pairs(group: VirtualGroup) -> Iterator[tuple[PostedHalf, PostedHalf]]:
    """Yield sends and receives of the same two ranks that have not met."""
    senders = [half for queue in group.sends.values() for half in queue]
    receivers = [half for queue in group.receives.values() for half in queue]
    for sender in senders:
        for receiver in receivers:
            is_meant = receiver.peer in (None, group.places[sender.rank.number])
            if is_meant and sender.peer == group.places[receiver.rank.number]:
                yield sender, receiver


def tell_lost_message(job: RankJob) -> ProgramFinding | None:
    """Tell of messages whose other rank has ended: to a wrong rank, one too many, or one too few."""
    by_number = {rank.number: rank for rank in job.ranks}
    lost = [(rank, post) for rank in job.ranks for post in [awaited_post(rank)] if post is not None]
    lost = [(rank, post) for rank, post in lost if post.way in ("sends", "receives")]
    ended = [(rank, post) for rank, post in lost if _all_ended(by_number, post)]
    for rank, post in sorted(ended, key=lambda pair: pair[1].way != "sends"):
        waiting = [other for other, its in lost if its.way == "receives" and rank.number in its.awaits]
        held = _held_by(job, {rank.number})
        if post.way == "sends" and waiting:
            return _tell_peer(rank, post, waiting)
        if post.way == "sends":
            return _tell_surplus(rank, post, held)
        return _tell_missing(rank, post, held)
    return None


def _all_ended(by_number: dict[int, Rank], post: Posted) -> bool:
    return bool(post.awaits) and all(by_number[number].state is State.DONE for number in post.awaits)


def _held_by(job: RankJob, numbers: set[int]) -> list[Rank]:
    """Return these ranks, and behind them all that wait for them, directly or not."""
    held = set(numbers)
    while True:
        more = {
            rank.number
            for rank in job.ranks
            for post in [awaited_post(rank)]
            if post is not None and held & set(post.awaits)
        }
        if more <= held:
            return sorted(
                (job.ranks[number] for number in held), key=lambda rank: (rank.number not in numbers, rank.number)
            )
        held |= more


def _tell_peer(rank: Rank, post: Posted, waiting: list[Rank]) -> ProgramFinding:
    title = (
        f"rank {rank.number} sends to {format_ranks(post.awaits)}, which has ended, while "
        f"{say_wait(other.number for other in waiting)} for a message of rank {rank.number}"
    )
    places = waiting_places([rank, *waiting])
    return ProgramFinding("peer", title, places, "is the destination off by one?")


def _tell_surplus(rank: Rank, post: Posted, held: list[Rank]) -> ProgramFinding:
    group, peer = post.group, post.awaits[0]
    met = group.met.get((group.places[rank.number], group.places[peer]), 0)
    title = f"rank {rank.number} sends rank {peer} one message more than the {met} that it has received"
    advice = "make as many sends as receives; is a number of batches or micro-batches another on these ranks?"
    return ProgramFinding("surplus message", title, waiting_places(held), advice)


def _tell_missing(rank: Rank, post: Posted, held: list[Rank]) -> ProgramFinding:
    group, peer = post.group, post.awaits[0]
    met = group.met.get((group.places[peer], group.places[rank.number]), 0)
    gone = [half for queue in group.sends.values() for half in queue if half.rank.number == peer]
    title = f"rank {rank.number} waits for message {met + 1} of rank {peer}, which has ended after sending {met}"
    if gone:
        title += f" and one to {format_ranks(gone[0].awaits)}"
    advice = "make as many sends as receives; is a number of batches or micro-batches another on these ranks?"
    return ProgramFinding("missing message", title, waiting_places(held), advice)
