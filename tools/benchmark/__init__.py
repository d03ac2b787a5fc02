"""Benchmarks that compare nnhal with other software."""
