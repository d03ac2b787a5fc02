"""Shadow: repetition of a part of the executions elsewhere, and comparison (docs/recording.md)."""
