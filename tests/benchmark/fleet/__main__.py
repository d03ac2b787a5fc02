"""`python -m tests.benchmark.fleet` kills parts of a fleet under load."""

import sys

from tests.benchmark.fleet.kills import main

if __name__ == "__main__":
    sys.exit(main())
