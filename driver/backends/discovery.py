"""Where dynamic backends are looked for, and what counts as one. Nothing is loaded here.

Files are `<Vendor>_<Name>_backend.py`, or `<Vendor>_<Name>_backend.so` with any number of `.<number>` behind it, in the
folders of a search path. Installed packages say it by the entry-point group `nnhal.backends`. A file is known by its
canonical path, so that links to it are no second backend.
"""

import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from driver.backends.report import Report, State

GROUP = "nnhal.backends"
"""Entry-point group of installed packages; an entry point names a module."""

_NAME = re.compile(r"[A-Za-z0-9]+_[A-Za-z0-9]+_backend\.(py|so(\.[0-9]+)*)")
_NEAR = re.compile(r"\.so|backend[^.]*(\.py)?$", re.IGNORECASE)
"""What somebody may have meant for a backend, so that it is worth a word."""
NAME_FAULT = (
    "the name does not follow <Vendor>_<Name>_backend.so[.<number>...] or <Vendor>_<Name>_backend.py, "
    "with letters and digits in Vendor and Name"
)

_log = logging.getLogger(__name__)


class Kind(Enum):
    """How a candidate is loaded."""

    PYTHON = "python"
    NATIVE = "native"
    PACKAGE = "package"


@dataclass(frozen=True, slots=True)
class Candidate:
    """Something that may be a backend.

    Attributes:
        location: canonical path of a file, or `module` of an entry point.
        origin: how people call it: the path where it was found, or the package.
    """

    kind: Kind
    location: str
    origin: str


def has_backend_name(name: str) -> bool:
    """Whether a file name follows the rule."""
    return _NAME.fullmatch(name) is not None


def file_candidate(path: Path) -> Candidate:
    """The candidate that an existing file is; its name is not judged."""
    kind = Kind.PYTHON if path.suffix == ".py" else Kind.NATIVE
    return Candidate(kind, str(path.resolve(strict=True)), str(path))


def folders(search_path: str) -> list[Path]:
    """The valid folders of a colon-separated list, in order. One that is not valid is a warning."""
    valid = []
    for text in filter(None, search_path.split(":")):
        fault = _folder_fault(Path(text))
        if fault:
            _log.warning("search path for backends: %s %s; it is left out", text, fault)
        else:
            valid.append(Path(text))
    return valid


def candidates(search_path: str) -> Iterator[Candidate | Report]:
    """All candidates, in order: folder by folder, by name within one, then packages.

    What only looks like a backend (its name is close to the rule, it leads nowhere, it is a known file again) comes as
    a report.
    """
    seen: dict[str, str] = {}
    for folder in folders(search_path):
        for candidate in _in_folder(folder):
            if isinstance(candidate, Candidate) and candidate.location in seen:
                reason = f"the same file as {seen[candidate.location]}"
                yield Report("", State.SKIPPED, candidate.origin, reason)
                continue
            if isinstance(candidate, Candidate):
                seen[candidate.location] = candidate.origin
            yield candidate
    yield from _in_packages(entry_points(group=GROUP))


def _folder_fault(path: Path) -> str:
    if not path.is_absolute():
        return "is not absolute"
    try:
        path.stat()
    except OSError as error:
        return f"cannot be used ({error.strerror})"
    return "" if path.is_dir() else "is not a folder"


def _in_folder(folder: Path) -> Iterator[Candidate | Report]:
    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        _log.warning("search path for backends: %s cannot be listed (%s)", folder, error.strerror)
        return
    for path in paths:
        if has_backend_name(path.name):
            yield _candidate(path)
        elif _NEAR.search(path.name):
            yield Report("", State.SKIPPED, str(path), NAME_FAULT)


def _candidate(path: Path) -> Candidate | Report:
    try:
        candidate = file_candidate(path)
    except OSError as error:
        return Report("", State.FAILED, str(path), f"the link leads nowhere ({error.strerror})")
    if not path.is_file():
        return Report("", State.FAILED, str(path), "is not a file")
    return candidate


def _in_packages(found: Iterable[EntryPoint]) -> Iterator[Candidate | Report]:
    for point in sorted(found, key=lambda point: (point.dist.name if point.dist else "", point.name)):
        package = f"package {point.dist.name} {point.dist.version}" if point.dist else "a package without a name"
        origin = f"{package} (entry point {point.name})"
        if point.attr:
            reason = f"entry point {point.name} = {point.value} must name a module, without ':'"
            yield Report("", State.FAILED, origin, reason)
        else:
            yield Candidate(Kind.PACKAGE, point.module, origin)
