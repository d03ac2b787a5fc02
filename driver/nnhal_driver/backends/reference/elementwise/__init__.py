"""Kernels of operations that act on each element."""
