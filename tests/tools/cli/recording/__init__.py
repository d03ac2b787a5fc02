"""Tests of the commands for recordings."""
