"""Tests of the converters of operations."""
