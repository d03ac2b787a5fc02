"""Tests of `nnhal_ndk`: the C library through ctypes, and from C programs."""
