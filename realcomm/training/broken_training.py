"""The Trace of a training that broke: the phases up to there, and the sync that was under way."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from collectives.records.messages import Message
from collectives.records.trace import Trace, Unfinished, name_in_library
from collectives.request import Request
from collectives.training.workload import Training
from realcomm.execution.broken_run import follow_messages, latest_accounts, make_broken_trace
from realcomm.launching.failures import LaunchFailed
from realcomm.launching.types import Ranks

PHASES = "phases"  # the subject under which a rank tells its spans, in seconds of ``time.perf_counter``


@contextmanager
def tracing_what_breaks(training: Training, cluster: Ranks) -> Iterator[None]:
    """Within the context, a launch that breaks has the Trace of what happened up to there as its ``trace``."""
    try:
        yield
    except LaunchFailed as error:
        error.trace = trace_broken_training(training, cluster, error)
        raise


def trace_broken_training(training: Training, cluster: Ranks, error: LaunchFailed) -> Trace | None:
    """Return the phases of all ranks that can tell, and the messages of the last sync that had begun; else None."""
    phases = [span for subjects in error.so_far.values() for span in subjects.get(PHASES, ())]
    accounts = latest_accounts(error)
    begins = [*(span.begin for span in phases), *(account.begin for account in accounts.values())]
    if not begins:
        return None
    start, sync = min(begins), training.gradient_sync
    messages, unfinished = list[Message](), list[Unfinished]()
    if sync is not None and accounts and training.buckets is None:
        number = next(iter(accounts.values())).number - 1
        request = Request(sync, training.parameter_count, op="mean")
        messages, unfinished = follow_messages(request, cluster.world_size, accounts, start)
        messages = [message._replace(collective=number) for message in messages]
        unfinished = [one._replace(collective=number) for one in unfinished]
    spans = [span._replace(begin=span.begin - start, end=span.end - start) for span in phases]
    trace = make_broken_trace(cluster, error, start, messages, spans, unfinished)
    return replace(
        trace,
        title=f"training/{training.sync_name}",
        algorithm=name_in_library(sync) if sync else "",
        chunks=sync.chunks(cluster.world_size) if sync else 0,
    )
