"""Runs the command line: `python -m nnhal_tools.cli` is the same as `nnhal`."""

from nnhal_tools.cli import main

main()
