"""What a model computes, reads and keeps, found without running it, and how long that takes on one device."""
