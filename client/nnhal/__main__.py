"""Runs the command line: `python -m nnhal` is the same as `nnhal`."""

import runpy

# The command line is a higher layer, so the client does not import it statically (see the contracts in pyproject.toml).
# It is in the same distribution, hence always there at run time.
runpy.run_module("nnhal_tools", run_name="__main__", alter_sys=True)
