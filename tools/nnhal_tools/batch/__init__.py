"""Runs of a model on many files: execution in batches, and a line of results for each file."""
