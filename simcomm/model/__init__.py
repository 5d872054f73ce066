"""What both engines obey: how links are shared, what goes wrong, and how much things vary."""
