"""Signatures of operations that act on each element."""
