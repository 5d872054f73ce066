"""Read scenario files: TOML tables become checked sections, from which clusters, algorithms and trainings are built."""

from scenarios.loader import CollectiveComparison, LoadedScenario, WhatIf, load
from scenarios.toml_files import shipped

__all__ = ["CollectiveComparison", "LoadedScenario", "WhatIf", "load", "shipped"]
