"""Budgets of lines of logic for the packages: `python -m tests.weight` prints them, `--write` sets them."""
