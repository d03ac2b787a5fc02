"""Starts `nnhal serve` so that the kernel ends it with the thread that started this process.

`python -P -m nnhal_fleet.launcher PARENT OPTIONS...` is `nnhal serve OPTIONS...` for a parent process.
"""

import runpy
import sys

from nnhal_service.supervisor.adoption import end_with

if __name__ == "__main__":
    end_with(int(sys.argv[1]))
    sys.argv[:] = ["nnhal", "serve", *sys.argv[2:]]
    runpy.run_module("nnhal_tools.cli", run_name="__main__", alter_sys=True)
