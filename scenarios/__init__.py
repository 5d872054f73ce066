"""Read and check scenario files, and build the clusters, algorithms and training runs that they describe."""

from scenarios.loader import CollectiveComparison, LoadedScenario, WhatIf, load
from scenarios.toml_files import shipped

__all__ = ["CollectiveComparison", "LoadedScenario", "WhatIf", "load", "shipped"]
