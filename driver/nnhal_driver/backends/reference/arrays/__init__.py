"""Kernels of operations that rearrange, select, reduce or create arrays."""
