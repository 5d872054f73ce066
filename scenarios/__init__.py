"""Scenario files and their loader: the file as tables, the tables as sections, the sections as what they name."""

from scenarios.loader import CollectiveComparison, LoadedScenario, WhatIf, load
from scenarios.toml_files import shipped

__all__ = ["CollectiveComparison", "LoadedScenario", "WhatIf", "load", "shipped"]
