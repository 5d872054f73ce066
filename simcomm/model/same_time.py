"""How close two times are that count as one, each as a share of a time.

Times that should be equal differ by rounding, which grows with the number of additions that led to them.
"""

SAME_ARRIVAL = 1e-12  # of the time; flows that arrive together are queued in their order, the same in both engines
SAME_WAIT = 1e-12  # of the wait for the next flow to end, in the reference engine; flows that end together
SAME_EVENT = 1e-13  # of the time, in the kernel; less than of a wait, as the time since the beginning is longer
SAME_STEP = 4e-16  # of the time, in max-plus, by which ranks may differ in a step; 100,000 repeats add less than 1e-10
