"""Tests of the command line `nnhal`."""
