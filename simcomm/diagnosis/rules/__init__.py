"""Rules, by subject: each looks at a case and yields causes, with the line that shows each."""

from collections.abc import Callable, Iterator

from simcomm.diagnosis.evidence.causes import Cause
from simcomm.diagnosis.evidence.expectation import Case
from simcomm.diagnosis.rules import hangs, host, network, runs, settings, tables, training

Rule = Callable[[Case], Iterator[Cause]]

RULES: tuple[Rule, ...] = (
    *settings.RULES,
    *network.RULES,
    *host.RULES,
    *tables.RULES,
    *hangs.RULES,
    *training.RULES,
    *runs.RULES,
)
