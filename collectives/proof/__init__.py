"""Prove that schedules cannot deadlock, and that every rank ends with the data that its collective defines."""
