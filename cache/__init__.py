"""Compilation cache: token-keyed files, integrity, eviction. Standard library only."""
