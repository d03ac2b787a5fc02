"""Tests of the boundary to the code of backends."""
