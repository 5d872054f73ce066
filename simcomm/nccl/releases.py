"""When NCCL's versions appeared, so that a year stands for a version and a version for a year.

Dates are those of the tags of https://github.com/NVIDIA/nccl, to about a month. RCCL carries the number of the NCCL
that it follows.
"""

RELEASES: dict[tuple[int, int], float] = {  # year and part of it
    (2, 0): 2017.6, (2, 1): 2017.9, (2, 2): 2018.4, (2, 3): 2018.7, (2, 4): 2019.1, (2, 5): 2019.9, (2, 6): 2020.2,
    (2, 7): 2020.5, (2, 8): 2020.9, (2, 9): 2021.3, (2, 10): 2021.5, (2, 11): 2021.7, (2, 12): 2022.2, (2, 13): 2022.5,
    (2, 14): 2022.7, (2, 15): 2022.8, (2, 16): 2023.0, (2, 17): 2023.2, (2, 18): 2023.4, (2, 19): 2023.9,
    (2, 20): 2024.2, (2, 21): 2024.4, (2, 22): 2024.5, (2, 23): 2024.7, (2, 24): 2025.0, (2, 25): 2025.1,
    (2, 26): 2025.2, (2, 27): 2025.4, (2, 28): 2025.8, (2, 29): 2026.0, (2, 30): 2026.3, (2, 31): 2026.6,
}  # fmt: skip


def year_of(version: tuple[int, int]) -> float:
    """Return when a version appeared; one that is not listed counts as the listed one before it.

    >>> year_of((2, 19)), year_of((2, 99))
    (2023.9, 2026.6)
    """
    older = [year for release, year in RELEASES.items() if release <= version]
    return older[-1] if older else RELEASES[2, 0]


def version_of(year: float) -> tuple[int, int]:
    """Return the version in use at a time; a whole year stands for just before its middle: users update late.

    >>> version_of(2023)
    (2, 18)
    """
    when = year + 0.45 if year == int(year) else year
    older = [release for release, appeared in RELEASES.items() if appeared <= when]
    return older[-1] if older else (2, 0)
