"""Other people's programs: a user's file runs in a process of its own, and what its ranks say comes back as numbers."""
