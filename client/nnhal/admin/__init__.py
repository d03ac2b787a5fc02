"""Administration of services (nnhal.admin.v1)."""
