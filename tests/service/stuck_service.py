"""Program that runs `nnhal serve` with a stop that hangs: `python -m tests.service.stuck_service serve ...`."""

import threading

from nnhal_service import server
from nnhal_tools.cli import main

server.STOP_TIMEOUT_S = 0


def hang(self: server.Server) -> None:
    """Take the place of Server.stop."""
    threading.Event().wait()


if __name__ == "__main__":
    server.Server.stop = hang  # type: ignore[method-assign]
    main()
