"""Scenario files, one question each, and their loader."""

from scenarios.loader import CollectiveComparison, Scenario, WhatIf, load
from scenarios.toml_files import shipped

__all__ = ["CollectiveComparison", "Scenario", "WhatIf", "load", "shipped"]
