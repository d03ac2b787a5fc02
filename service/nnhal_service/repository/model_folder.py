"""Folder of models: finds their files, and reads those that are complete.

    detector.tflite              version 1 of "detector"
    detector.toml                its configuration
    classifier/1/model.tflite    version 1 of "classifier"
    classifier/2/model.tflite    version 2
    classifier/config.toml       the configuration of all versions
    classifier/2/config.toml     the same, instead of the other one: it has appeared with its version
    segmenter/any.tflite         version 1 of "segmenter"

Names that begin with a dot are left out. A folder with copies of what is at a URL also has

    .delays.json                 why files of the URL are not copied, by their names; "" stands for all of them
"""

import hashlib
import json
import os
import re
import stat
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from nnhal.types import Bytes
from nnhal_driver.mapped_memory import read_at
from nnhal_service.replaced_files import file_version, version_of
from nnhal_service.repository.model_config import ModelConfig, parse_config

SUFFIX = ".tflite"
CONFIG_SUFFIX, CONFIG_NAME = ".toml", "config.toml"
MODEL_NAME = "model.tflite"
DELAYS_NAME = ".delays.json"
ALL_VERSIONS = 0
MAX_CONFIG_BYTES = 2**20
LARGEST_VERSION = 2**63 - 1
_VERSION = re.compile("[1-9][0-9]{0,18}")
_FILE = re.compile(
    r"(?P<name>[^/]+)(\.tflite|\.toml|/config\.toml|/[^/]+\.tflite"
    rf"|/(?P<version>{_VERSION.pattern})/(model\.tflite|config\.toml))"
)

Mark = tuple[int, ...] | None
"""Numbers that change with a file; None without one."""


class UnusableFileError(Exception):
    """A file of a model that cannot be used now."""


class VanishedFileError(UnusableFileError):
    """A file that is no longer there."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file, as it was when the folder was scanned."""

    path: Path
    mark: Mark


@dataclass(frozen=True, slots=True)
class FoundModel:
    """Files of one name.

    Attributes:
        versions: the files of the model by version.
        config: the file with its options.
        problem: why the name cannot be used, or "".
        delays: why files are not used, by version: those at a URL are not copied, or a version has none with the
            expected name. ALL_VERSIONS stands for all of them.
    """

    versions: Mapping[int, FoundFile]
    config: FoundFile
    problem: str = ""
    delays: dict[int, str] = field(default_factory=dict)


class Place(NamedTuple):
    """Model and version that a file belongs to; ALL_VERSIONS for a configuration of all."""

    name: str
    version: int


class ModelFolder:
    """The folder that an operator names. It may be a link; the links in it must not lead out of it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def scan(self) -> dict[str, FoundModel]:
        """Return the models in the folder by name. Nothing is read.

        Raises:
            OSError: the folder cannot be read.
        """
        found: dict[str, FoundModel] = {}
        entries = sorted(os.listdir(self.root))
        for entry in entries:
            path = self.root / entry
            if entry.startswith(".") or not entry.isprintable():
                continue
            delays: dict[int, str] = {}
            if path.is_dir():
                versions, config = _files(path)
                delays = dict(_misnamed(path, versions))
                name = entry
            elif entry.endswith(SUFFIX):
                name = entry.removesuffix(SUFFIX)
                versions = {1: _found(path)}
                config = _found(path.with_suffix(CONFIG_SUFFIX))
            else:
                continue
            if name in found and found[name].versions:
                problem = f"there are both {name}{SUFFIX} and a folder {name}"
            else:
                problem = "" if versions else "; ".join(delays.values())
            if versions or delays:
                found[name] = FoundModel(versions, config, problem, delays)
        self._add_delays(found)
        return found

    def _add_delays(self, found: dict[str, FoundModel]) -> None:
        """Add why the files of models are not copied, also of those of which there is no copy."""
        with suppress(UnusableFileError, ValueError):
            for file, reason in json.loads(self.read_text(_found(self.root / DELAYS_NAME)) or "{}").items():
                if (place := locate(file)) is not None:
                    not_copied = FoundModel({}, FoundFile(self.root, None), reason)
                    found.setdefault(place.name, not_copied).delays[place.version] = reason
                for model in () if file else found.values():
                    model.delays.setdefault(ALL_VERSIONS, reason)

    def read(self, file: FoundFile, sha256: str = "") -> tuple[Bytes, Mark]:
        """Return the current contents of a file in private memory, where they cannot change, and their numbers.

        Raises:
            UnusableFileError: it leads out of the folder, is being written, or does not have the digest.
            MemoryError: there is not enough memory.
        """
        with self._open(file) as (descriptor, status):
            data = read_at(descriptor, status.st_size)
        mark = version_of(status)
        if data.size < status.st_size or file_version(file.path) != mark:
            raise UnusableFileError(f"{file.path.name} is being written")
        if sha256 and (actual := hashlib.sha256(data.data).hexdigest()) != sha256:
            raise UnusableFileError(f"{file.path.name} has the SHA-256 {actual}; its configuration says {sha256}")
        return data, mark

    def read_config(self, file: FoundFile) -> ModelConfig:
        """Return the options in a file; the default ones if there is no file, or an empty one.

        Raises:
            UnusableFileError: the file cannot be used.
        """
        text = self.read_text(file)
        try:
            return parse_config(text)
        except ValueError as error:
            raise UnusableFileError(f"{file.path.name}: {error}") from None

    def read_text(self, file: FoundFile) -> bytes:
        """Return the contents of a file with options; b"" if there is no file.

        Raises:
            UnusableFileError: the file cannot be used.
        """
        if file.mark is None:
            return b""
        with self._open(file) as (descriptor, status):
            if status.st_size > MAX_CONFIG_BYTES:
                raise UnusableFileError(f"{file.path.name} has {status.st_size} bytes; at most {MAX_CONFIG_BYTES}")
            return os.pread(descriptor, status.st_size, 0)

    @contextmanager
    def _open(self, file: FoundFile) -> Iterator[tuple[int, os.stat_result]]:
        """Yield the descriptor and the status of a file, which is really in the folder."""
        try:
            descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe would block
        except FileNotFoundError:
            raise VanishedFileError(f"{file.path.name} is no longer there") from None
        except OSError as error:
            raise UnusableFileError(f"{file.path.name} cannot be read: {error.strerror}") from None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise UnusableFileError(f"{file.path.name} is not a file")
            opened = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            if not opened.is_relative_to(os.path.realpath(self.root)):
                raise UnusableFileError(f"{file.path.name} is a link that leads out of the folder of models")
            yield descriptor, status
        except OSError as error:
            raise UnusableFileError(f"{file.path.name} cannot be read: {error.strerror}") from None
        finally:
            os.close(descriptor)


def _files(folder: Path) -> tuple[dict[int, FoundFile], FoundFile]:
    """Return the files of a model by version, and its configuration, which belong together also during a push."""
    while True:
        versions = dict(_versions(folder))
        brought = brought_configs(folder, versions)
        config = brought[-1] if brought else _found(folder / CONFIG_NAME)
        if versions.keys() == dict(_versions(folder)).keys():
            return versions, config


def _versions(folder: Path) -> Iterator[tuple[int, FoundFile]]:
    """Yield the files of a model by version: those in folders with numbers, or the only file."""
    numbered, files = _entries(folder)
    for entry in numbered:
        file = _found(folder / entry / MODEL_NAME)
        if file.mark is not None and int(entry) <= LARGEST_VERSION:
            yield int(entry), file
    if not numbered and len(files) == 1:
        yield 1, _found(folder / files[0])


def _entries(folder: Path) -> tuple[list[str], list[str]]:
    """Return the names of the versions and of the files in the folder of a model, in order."""
    try:
        entries = [entry for entry in sorted(os.listdir(folder)) if not entry.startswith(".")]
    except OSError:
        return [], []
    numbered = [entry for entry in entries if _VERSION.fullmatch(entry)]
    return numbered, [entry for entry in entries if entry.endswith(SUFFIX)]


def _misnamed(folder: Path, versions: Container[int]) -> Iterator[tuple[int, str]]:
    """Yield why versions have no model, although there are files for them: these have other names."""
    numbered, files = _entries(folder)
    if not numbered and len(files) > 1:
        yield 1, f"there are {', '.join(files)}; expected one file, or a folder for each version"
    for number in numbered:
        other = next((folder / number).glob(f"[!.]*{SUFFIX}"), None) if int(number) not in versions else None
        if other is not None:
            yield int(number), f"there is {number}/{other.name}; expected {number}/{MODEL_NAME}"


def locate(path: str) -> Place | None:
    """Return the place of a file in a folder of models; None if no model has such a file.

    Args:
        path: its path in the folder, from any source.
    """
    match = _FILE.fullmatch(path)
    parts = path.split("/")
    if match is None or any(part[0] == "." or not part.isprintable() or len(part.encode()) > 255 for part in parts):
        return None
    version = int(match["version"] or path.endswith(SUFFIX))
    return Place(match["name"], version) if version <= LARGEST_VERSION else None


def brought_configs(folder: Path, versions: Iterable[int]) -> list[FoundFile]:
    """Return the configurations of a model that have appeared with its versions. The last one counts."""
    files = [_found(folder / str(version) / CONFIG_NAME) for version in sorted(versions)]
    return [file for file in files if file.mark is not None]


def _found(path: Path) -> FoundFile:
    return FoundFile(path, file_version(path))
