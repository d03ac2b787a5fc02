"""Program `nnhal` on a machine with little memory. The variable MEMORY_MAX names a file that says how much."""

import os
from pathlib import Path

from nnhal_service import memory_limits
from nnhal_tools.cli import main

if __name__ == "__main__":
    memory_limits._CONTAINER_LIMITS = (Path(os.environ["MEMORY_MAX"]),)
    main()
