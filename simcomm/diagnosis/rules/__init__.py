"""Rules, by subject: each looks at a case and yields causes, with the line that shows each."""

from collections.abc import Callable, Iterator

from simcomm.diagnosis.evidence.causes import Cause
from simcomm.diagnosis.evidence.expectation import DiagnosedCase
from simcomm.diagnosis.rules.broken_starts import RULES as BROKEN_STARTS
from simcomm.diagnosis.rules.hangs import RULES as HANGS
from simcomm.diagnosis.rules.host import RULES as HOST
from simcomm.diagnosis.rules.network import RULES as NETWORK
from simcomm.diagnosis.rules.runs import RULES as RUNS
from simcomm.diagnosis.rules.settings import RULES as SETTINGS
from simcomm.diagnosis.rules.tables import RULES as TABLES
from simcomm.diagnosis.rules.training import RULES as TRAINING

Rule = Callable[[DiagnosedCase], Iterator[Cause]]

RULES: tuple[Rule, ...] = (*SETTINGS, *NETWORK, *HOST, *TABLES, *HANGS, *BROKEN_STARTS, *TRAINING, *RUNS)
