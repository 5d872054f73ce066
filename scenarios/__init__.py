"""Scenario files, one question each, and their loader."""

from scenarios.files import shipped
from scenarios.scenario import CollectiveQuestion, Scenario, WhatIf, load

__all__ = ["CollectiveQuestion", "Scenario", "WhatIf", "load", "shipped"]
