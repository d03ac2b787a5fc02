"""Tests of recorded executions: their format and the reader."""
