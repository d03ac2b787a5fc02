"""Compute backends: the interface (`api`), the registry, and one folder for each backend in the tree."""
