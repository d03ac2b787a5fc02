"""Tests of replay: comparison, blame, reports and vectors."""
