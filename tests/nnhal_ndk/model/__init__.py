"""Tests of `nnhal_ndk.model`."""
