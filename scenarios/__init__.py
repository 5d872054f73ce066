"""Scenario files, one question each, and their loader."""

from scenarios.loader import CollectiveQuestion, Scenario, WhatIf, load
from scenarios.toml_files import shipped

__all__ = ["CollectiveQuestion", "Scenario", "WhatIf", "load", "shipped"]
