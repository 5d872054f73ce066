"""Pictures of scenarios and of lessons."""
