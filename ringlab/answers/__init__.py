"""What each command answers: dataclasses with ``to_dict()``, and the functions that find them. Nothing is printed."""
