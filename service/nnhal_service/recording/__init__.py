"""Recording of executions into archives, if the operator wants it (docs/recording.md)."""
