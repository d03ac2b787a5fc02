"""Tests of the shape rules' helpers."""
