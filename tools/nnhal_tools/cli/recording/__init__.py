"""Commands for recordings of executions: `nnhal record` and `nnhal replay`."""
