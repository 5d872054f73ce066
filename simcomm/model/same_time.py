"""How close two times are that count as one, each as a share of a time.

Times that should be equal differ by rounding, which grows with the number of additions that led to them.
"""

SAME_ARRIVAL = 1e-12  # of the time; flows that arrive together are queued in their order, the same in both engines
SAME_WAIT = 1e-12  # of the wait for the next flow to end, in the reference engine; flows that end together
SAME_EVENT = 1e-13  # of the time, in the kernel; less, as the time since the beginning is longer than a wait
SAME_STEP = 4e-16  # of the time, in max-plus; least, as all further steps repeat one that took all ranks the same
