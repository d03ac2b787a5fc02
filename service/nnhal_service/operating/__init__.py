"""Operation of a running service: what operators see of it, and what they can change."""
