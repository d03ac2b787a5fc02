"""Mark of the tests that use Unix sockets, which Windows does not have."""

import sys

import pytest

needs_unix_sockets = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no Unix sockets")
