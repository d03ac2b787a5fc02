"""Compute backends: the interface (`api`), the registry, plug-ins, and a folder for each built-in backend."""
