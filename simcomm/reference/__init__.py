"""The reference engine, which simulates with simpy. It is slow, but easy to read."""
