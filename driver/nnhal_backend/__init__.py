"""Public interface for authors of compute backends. Import names from a version of it, such as `nnhal_backend.v1`."""
