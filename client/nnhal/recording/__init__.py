"""Recorded executions: their format, and the reader of archives (docs/recording.md)."""
