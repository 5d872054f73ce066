"""What both engines obey: sharing of links, trouble and jitter."""
