"""Placement of operations on backends, and compilation into plans."""
