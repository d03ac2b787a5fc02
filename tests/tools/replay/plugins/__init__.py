"""Plug-in with seeded defects."""
