"""The variables by which torchrun tells a process which rank it is."""

ADDRESS, PORT, RUN = "127.0.0.1", "29500", "virtual"  # of a rendezvous that nobody connects to


def name_as_torchrun(number: int, ranks: int, local_ranks: int) -> dict[str, str]:
    """Return the environment of a rank, with so many ranks on a machine.

    >>> found = name_as_torchrun(3, 4, 2)
    >>> found["RANK"], found["LOCAL_RANK"], found["GROUP_RANK"]
    ('3', '1', '1')
    """
    node = number // local_ranks
    found = {
        "RANK": number,
        "WORLD_SIZE": ranks,
        "LOCAL_RANK": number % local_ranks,
        "LOCAL_WORLD_SIZE": min(local_ranks, ranks - node * local_ranks),
        "GROUP_RANK": node,
        "GROUP_WORLD_SIZE": -(-ranks // local_ranks),
        "ROLE_RANK": number,
        "ROLE_WORLD_SIZE": ranks,
        "ROLE_NAME": "default",
        "MASTER_ADDR": ADDRESS,
        "MASTER_PORT": PORT,
        "TORCHELASTIC_RUN_ID": RUN,
        "TORCHELASTIC_RESTART_COUNT": 0,
        "TORCHELASTIC_MAX_RESTARTS": 0,
    }
    return {name: str(value) for name, value in found.items()}
