"""Discovery of dynamic backends: files on a search path and entry points of installed packages. Loads nothing.

Files are named `<Vendor>_<Name>_backend.py`, or `<Vendor>_<Name>_backend.so` followed by any number of `.<number>`.
Packages use the entry-point group `nnhal.backends`. A file is identified by its canonical path, so a link to it is not
a second backend. Files that every user of the machine can change are refused.
"""

import logging
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from nnhal_driver.backends.report import CandidateState, Report

ENTRY_POINT_GROUP = "nnhal.backends"
"""Entry-point group of installed packages; an entry point names a module."""

_NAME = re.compile(r"[A-Za-z0-9]+_[A-Za-z0-9]+_backend\.(py|so(\.[0-9]+)*)")
_NEAR = re.compile(r"\.so|backend[^.]*(\.py)?$", re.IGNORECASE)
"""File names close to the rule. Such files are reported."""
NAME_RULE = (
    "the name does not follow <Vendor>_<Name>_backend.so[.<number>...] or <Vendor>_<Name>_backend.py, "
    "with letters and digits in Vendor and Name"
)

_ROOT = 0

_log = logging.getLogger(__name__)


class CandidateKind(Enum):
    """Kind of a candidate, which decides how it is loaded."""

    PYTHON = "python"
    NATIVE = "native"
    PACKAGE = "package"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible backend.

    Attributes:
        kind: how to load it.
        location: canonical path of a file, or module of an entry point.
        origin: name for people: the path where it was found, or the package.
    """

    kind: CandidateKind
    location: str
    origin: str


def has_backend_name(name: str) -> bool:
    """Return whether a file name follows the rule."""
    return _NAME.fullmatch(name) is not None


def file_candidate(path: Path) -> Candidate:
    """Return the candidate for an existing file. Does not check its name."""
    kind = CandidateKind.PYTHON if path.suffix == ".py" else CandidateKind.NATIVE
    return Candidate(kind, str(path.resolve(strict=True)), str(path))


def valid_folders(search_path: str, *, is_default: bool = False) -> list[Path]:
    """Return the valid folders of a colon-separated list, in order. Logs a warning for each invalid one.

    Those of the default, which the operator did not choose, may be absent, and must belong to this user or to root.
    """
    valid = []
    for text in filter(None, search_path.split(":")):
        if is_default and not os.path.lexists(text):
            continue
        fault = _folder_fault(Path(text)) or (_owner_fault(Path(text)) if is_default else "")
        if fault:
            _log.warning("search path for backends: %s %s; it is ignored", text, fault)
        else:
            valid.append(Path(text))
    return valid


def writable_by_all(path: Path) -> str:
    """Return why a file or folder is unsafe to load from, or "".

    Raises:
        OSError: it is not accessible.
    """
    mode = stat.S_IMODE(path.stat().st_mode)
    return f"can be changed by every user (mode {mode:o}): run chmod o-w" if mode & stat.S_IWOTH else ""


def find_candidates(search_path: str, *, is_default: bool = False) -> Iterator[Candidate | Report]:
    """Yield all candidates: by folder, by name within a folder, then packages.

    Yields a report for a file that is not a candidate: a name close to the rule, a dangling link, a known file, or a
    file that every user can change. The arguments are those of `valid_folders`.
    """
    seen: dict[str, str] = {}
    for folder in valid_folders(search_path, is_default=is_default):
        for candidate in _in_folder(folder):
            if isinstance(candidate, Candidate) and candidate.location in seen:
                reason = f"the same file as {seen[candidate.location]}"
                candidate = Report("", CandidateState.SKIPPED, candidate.origin, reason)
            elif isinstance(candidate, Candidate):
                seen[candidate.location] = candidate.origin
            yield candidate
    yield from _in_packages(entry_points(group=ENTRY_POINT_GROUP))


def _folder_fault(path: Path) -> str:
    if not path.is_absolute():
        return "is not an absolute path"
    try:
        path.stat()
    except OSError as error:
        return f"cannot be used ({error.strerror})"
    return writable_by_all(path) if path.is_dir() else "is not a folder"


def _owner_fault(path: Path) -> str:
    owner = path.stat().st_uid
    return "" if owner in (_ROOT, os.geteuid()) else f"belongs to user {owner}; expected {os.geteuid()}, or root"


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
            yield Report("", CandidateState.SKIPPED, str(path), NAME_RULE)


def _candidate(path: Path) -> Candidate | Report:
    try:
        candidate = file_candidate(path)
    except OSError as error:
        return Report("", CandidateState.FAILED, str(path), f"the link is dangling ({error.strerror})")
    if not path.is_file():
        return Report("", CandidateState.FAILED, str(path), "it is not a file")
    file = Path(candidate.location)
    for unsafe in (file, file.parent):  # a link may lead to another folder
        if fault := writable_by_all(unsafe):
            return Report("", CandidateState.FAILED, str(path), f"{unsafe} {fault}")
    return candidate


def _in_packages(points: Iterable[EntryPoint]) -> Iterator[Candidate | Report]:
    for point in sorted(points, key=lambda point: (point.dist.name if point.dist else "", point.name)):
        package = f"package {point.dist.name} {point.dist.version}" if point.dist else "a package without a name"
        origin = f"{package} (entry point {point.name})"
        if point.attr:
            reason = f"entry point {point.name} = {point.value} must name a module, without ':'"
            yield Report("", CandidateState.FAILED, origin, reason)
        else:
            yield Candidate(CandidateKind.PACKAGE, point.module, origin)
