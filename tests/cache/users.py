"""Users for tests that give files away."""

import os

import pytest

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="giving files away and mounting need root")
NOBODY = 65534
"""Id of a user who owns no files of the test."""
