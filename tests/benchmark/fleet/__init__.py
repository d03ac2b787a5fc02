"""Benchmarks of fleets. They need the extra `fleet`."""
