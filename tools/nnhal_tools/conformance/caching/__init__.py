"""Helpers for the checks of compilation caching: models, cache files, and round trips of saving and retrieving."""
