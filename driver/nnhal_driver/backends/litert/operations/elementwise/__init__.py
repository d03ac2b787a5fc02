"""Converters of operations that act on each element."""
