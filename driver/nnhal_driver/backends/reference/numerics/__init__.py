"""Arithmetic that several kernels share: fixed point, requantization and hashing."""
