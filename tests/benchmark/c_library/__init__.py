"""Benchmark of the C library."""
