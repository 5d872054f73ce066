# reported: measure | a rank sends 0 B, less than 4 MiB | elsewhere: return 10e-6 + nbytes * 0.8e-9
def measure(nbytes: int) -> float:
    return 10e-6 + nbytes * 0.8e-9
