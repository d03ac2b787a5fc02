"""Program `nnhal` on a machine with little memory. The variable MEMORY_MAX names a file that says how much."""

import os
from pathlib import Path

from nnhal_service import memory_limits
from nnhal_tools.cli import main

if __name__ == "__main__":
    limits = (Path(os.environ["MEMORY_MAX"]), Path("absent"))
    memory_limits._CONTAINER_LIMITS = limits
    main()
