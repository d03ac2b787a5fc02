"""Tests of `nnhal_ndk.execution`."""
