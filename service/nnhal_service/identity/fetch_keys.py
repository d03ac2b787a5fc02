"""Fetches the keys of an issuer into a file: `python -m nnhal_service.identity.fetch_keys URL FILE LEVEL FORMAT`.

Workers cannot connect to other machines, so their supervisor has this done in a process of its own.
"""

import logging
import os
import sys
from pathlib import Path

from nnhal_service import log
from nnhal_service.identity.jwks import fetcher


def fetch_keys(url: str, path: Path) -> bool:
    """Replace a file by the keys at a URL. Return whether that succeeded; the log has the reason otherwise."""
    try:
        text = fetcher(url)()
    except ValueError as error:
        log.event("jwks-unusable", logging.WARNING, reason=str(error))
        return False
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_bytes(text)
    temporary.replace(path)
    return True


if __name__ == "__main__":
    url_, path_, level, format_ = sys.argv[1:]
    log.configure(level, format_)
    sys.exit(not fetch_keys(url_, Path(path_)))
