"""Read scenario files, check their tables, and build clusters, algorithms and training runs from them."""

from scenarios.loader import CollectiveComparison, LoadedScenario, WhatIf, load
from scenarios.toml_files import shipped

__all__ = ["CollectiveComparison", "LoadedScenario", "WhatIf", "load", "shipped"]
