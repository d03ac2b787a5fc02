"""`python -m tools.cli` is `nnhal`."""

from tools.cli import main

main()
