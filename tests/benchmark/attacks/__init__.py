"""Figures of a well-behaved client beside each of several attacks: `python -m tests.benchmark.attacks`."""
