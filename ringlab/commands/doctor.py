"""The command ``ringlab doctor``."""

from ringlab.terminal.options import JsonOpt
from ringlab.terminal.output import give


def doctor(json_to: JsonOpt = None) -> None:
    """Look at what this machine can run, and what is missing."""
    from ringlab.answers.doctor import examine
    from ringlab.terminal.tables import show_findings

    findings = examine()
    answer = {"schema_version": 1, "kind": "doctor", "findings": [finding._asdict() for finding in findings]}
    give(answer, json_to, lambda console: show_findings(findings, console))
