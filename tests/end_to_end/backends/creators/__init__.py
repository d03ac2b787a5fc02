"""Plug-in of several files."""
