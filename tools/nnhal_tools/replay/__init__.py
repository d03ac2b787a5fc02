"""Replay of recorded executions: repetition, comparison, reports, and test vectors."""
