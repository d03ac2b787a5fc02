"""Administration of a running service: its state, and what an operator can do to it."""
