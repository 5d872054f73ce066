"""Find messages that cannot be matched: different tags, peers, counts or sizes, or NCCL's issue order."""

from collections.abc import Iterator

from virtual.diagnosis.locations import awaited_post, describe, operation_name, waiting_locations
from virtual.matching.group import VirtualGroup
from virtual.matching.posted import Posted, PostedHalf
from virtual.ranks.finding import FindingPlace, ProgramFinding, format_ranks, say_wait
from virtual.ranks.rank import Rank, RankJob, State
from virtual.ranks.sites import CallSite


def report_message_mismatch(sender: PostedHalf, receiver: PostedHalf) -> ProgramFinding:
    """Return a finding for a message that is received into a tensor of another size or type."""
    sent, received = sender.tensors[0], receiver.tensors[0]
    trait = "type" if sent.numel() == received.numel() else "size"
    title = f"rank {receiver.rank.number} receives a tensor of a different {trait} than rank {sender.rank.number} sends"
    locations = tuple(FindingPlace((half.rank.number,), describe(half), half.site) for half in (sender, receiver))
    advice = "use the same shape and dtype on both ranks; if the receiver cannot know the size, send the size first"
    return ProgramFinding("message size", title, locations, advice, time=sender.group.world.calendar.now)


def find_nccl_queue_block(job: RankJob) -> ProgramFinding | None:
    """Return a finding for a message that is blocked in NCCL's queue: a communicator runs its calls in order."""
    blocked = [(post, post.behind) for rank in job.ranks for post in _posted_by(rank) if post.behind is not None]
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
    locations = tuple(_queue_heads(posts) for posts in together.values())
    advice = "pass both messages to one batch_isend_irecv; this program runs on gloo, but may hang on NCCL"
    return ProgramFinding("nccl order", title, locations, advice)


def _queue_heads(posts: list[Posted]) -> FindingPlace:
    numbers = tuple(post.rank.number for post in posts)
    operation = describe(posts[0]) if len(posts) == 1 else operation_name(posts[0].what)
    return FindingPlace(numbers, operation, posts[0].site, tuple(post.awaits for post in posts))


def _posted_by(rank: Rank) -> list[Posted]:
    pending = [work.posted for work in rank.unwaited.values()]
    waited_for = awaited_post(rank)
    return pending if waited_for is None else [*pending, waited_for]


def find_tag_mismatch(job: RankJob) -> ProgramFinding | None:
    """Return a finding for a message that is sent with one tag and received with another."""
    for group in job.groups.values():
        for sender, receiver in _unmatched_pairs(group):
            if sender.tag != receiver.tag:
                title = (
                    f"rank {sender.rank.number} sends with tag {sender.tag}, and rank {receiver.rank.number} "
                    f"receives with tag {receiver.tag}"
                )
                locations = tuple(
                    FindingPlace((half.rank.number,), describe(half), half.site, (half.awaits,))
                    for half in (sender, receiver)
                )
                return ProgramFinding("tag", title, locations, "pass the same tag on both ranks")
    return None


def _unmatched_pairs(group: VirtualGroup) -> Iterator[tuple[PostedHalf, PostedHalf]]:
    senders = [half for queue in group.sends.values() for half in queue]
    receivers = [half for queue in group.receives.values() for half in queue]
    for sender in senders:
        for receiver in receivers:
            is_from_sender = receiver.peer in (None, group.places[sender.rank.number])
            if is_from_sender and sender.peer == group.places[receiver.rank.number]:
                yield sender, receiver


def find_unmatched_message(job: RankJob) -> ProgramFinding | None:
    """Return a finding for a message whose peer has exited: wrong peer, surplus send or missing send."""
    by_number = {rank.number: rank for rank in job.ranks}
    lost = [(rank, post) for rank in job.ranks for post in [awaited_post(rank)] if post is not None]
    lost = [(rank, post) for rank, post in lost if post.way in ("sends", "receives")]
    ended = [(rank, post) for rank, post in lost if _all_ended(by_number, post)]
    for rank, post in sorted(ended, key=lambda pair: pair[1].way != "sends"):
        waiting = [other for other, its in lost if its.way == "receives" and rank.number in its.awaits]
        blocked = _held_by(job, {rank.number})
        if post.way == "sends" and waiting:
            return _report_wrong_peer(rank, post, waiting)
        if post.way == "sends":
            return _report_surplus_send(rank, post, blocked)
        return _report_missing_send(rank, post, blocked)
    return None


def _all_ended(by_number: dict[int, Rank], post: Posted) -> bool:
    return bool(post.awaits) and all(by_number[number].state is State.DONE for number in post.awaits)


def _held_by(job: RankJob, numbers: set[int]) -> list[Rank]:
    blocked = set(numbers)
    while True:
        more = {
            rank.number
            for rank in job.ranks
            for post in [awaited_post(rank)]
            if post is not None and blocked & set(post.awaits)
        }
        if more <= blocked:
            return sorted(
                (job.ranks[number] for number in blocked), key=lambda rank: (rank.number not in numbers, rank.number)
            )
        blocked |= more


def _report_wrong_peer(rank: Rank, post: Posted, waiting: list[Rank]) -> ProgramFinding:
    title = (
        f"rank {rank.number} sends to {format_ranks(post.awaits)}, which has exited, while "
        f"{say_wait(other.number for other in waiting)} for a message from rank {rank.number}"
    )
    locations = waiting_locations([rank, *waiting])
    return ProgramFinding("peer", title, locations, "check the destination; is it off by one?")


def _report_surplus_send(rank: Rank, post: Posted, blocked: list[Rank]) -> ProgramFinding:
    group, peer = post.group, post.awaits[0]
    met = group.met.get((group.places[rank.number], group.places[peer]), 0)
    title = f"rank {rank.number} sends message {met + 1} to rank {peer}, which exited after receiving {met}"
    advice = "match the number of sends and receives; do these ranks have different numbers of (micro-)batches?"
    return ProgramFinding("surplus message", title, waiting_locations(blocked), advice)


def _report_missing_send(rank: Rank, post: Posted, blocked: list[Rank]) -> ProgramFinding:
    group, peer = post.group, post.awaits[0]
    met = group.met.get((group.places[peer], group.places[rank.number]), 0)
    gone = [half for queue in group.sends.values() for half in queue if half.rank.number == peer]
    title = f"rank {rank.number} waits for message {met + 1} from rank {peer}, which exited after sending {met}"
    if gone:
        title += f" and one to {format_ranks(gone[0].awaits)}"
    advice = "match the number of sends and receives; do these ranks have different numbers of (micro-)batches?"
    return ProgramFinding("missing message", title, waiting_locations(blocked), advice)
