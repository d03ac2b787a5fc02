"""Executions over shared memory, for clients on the same machine."""
