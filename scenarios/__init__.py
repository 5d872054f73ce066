"""Scenario files and their loader: the file as tables, the tables as forms, the forms as what they name."""

from scenarios.loader import CollectiveComparison, Scenario, WhatIf, load
from scenarios.toml_files import shipped

__all__ = ["CollectiveComparison", "Scenario", "WhatIf", "load", "shipped"]
