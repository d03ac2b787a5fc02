"""Folders in which certificates are replaced. A process that restricts itself must be able to read them later."""

import os
from collections.abc import Iterator
from pathlib import Path

_MAX_LINKS = 40
"""Longest chain of links that Linux follows."""
_SHARED = ("/", "/etc", "/etc/pki", "/etc/ssl", "/etc/ssl/private", "/home", "/opt", "/root", "/run", "/srv", "/tmp")
_SHARED_OF_SYSTEM = ("/usr", "/usr/local", "/usr/local/etc", "/var", "/var/lib", "/var/run", "/var/tmp")


def replacement_folders(path: Path) -> Iterator[Path]:
    """Yield the folders in which a file, or a link that leads to it, can be replaced by another one.

    Kubernetes mounts /tls/tls.crt -> ..data/tls.crt, and replaces the link ..data. Certbot replaces the link
    live/NAME/privkey.pem -> ../../archive/NAME/privkey1.pem. Others keep /srv/tls/current -> 2026-01.
    """
    path = Path(os.path.abspath(path))
    for _ in range(_MAX_LINKS):
        yield path.parent
        yield from _folders_of_versions(path.parent)
        if not path.is_symlink():
            return
        path = Path(os.path.normpath(path.parent / path.readlink()))


def _folders_of_versions(folder: Path) -> Iterator[Path]:
    """Yield the folders in which a link stands for one of several versions beside it."""
    for part in (folder, *folder.parents):
        if part.is_symlink() and part.resolve().parent == part.parent.resolve():
            yield part.parent


def is_shared(folder: Path) -> bool:
    """Return whether a folder has contents of many kinds: it may have secrets of others."""
    real, home = folder.resolve(), Path.home().resolve()
    return str(real) in {*_SHARED, *_SHARED_OF_SYSTEM} or real == home or real in home.parents
