"""Backends that were written by docs/backends.md alone, as a third party would, and their tests."""
