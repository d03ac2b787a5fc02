"""`nnhal serve` whose stop hangs: `python -m tests.service.stuck_service serve ...`."""

import threading

from service import server
from tools.cli import main

server.STOPPING_S = 0


def hang(self: server.Server) -> None:
    """In place of a stop."""
    threading.Event().wait()


if __name__ == "__main__":
    server.Server.stop = hang  # type: ignore[method-assign]
    main()
