"""Read scenario files: TOML tables become checked sections, then clusters, algorithms and trainings."""

from scenarios.loader import CollectiveComparison, LoadedScenario, WhatIf, load
from scenarios.toml_files import shipped

__all__ = ["CollectiveComparison", "LoadedScenario", "WhatIf", "load", "shipped"]
