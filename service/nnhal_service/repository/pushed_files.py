"""Files of models that clients push: each version appears as a whole, in NAME/VERSION/model.tflite, or not at all."""

import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from nnhal.errors import general_failure, invalid_argument
from nnhal.types import Bytes
from nnhal_service.identity.accounts import Account
from nnhal_service.log import event
from nnhal_service.repository.model_config import DEFAULT, parse_config
from nnhal_service.repository.model_folder import (
    CONFIG_NAME,
    LARGEST_VERSION,
    MODEL_NAME,
    FoundModel,
    UnusableFileError,
    brought_configs,
)
from nnhal_service.repository.model_loader import ModelLoadError
from nnhal_service.repository.repository import Repository, unknown_model

_NAME = re.compile(r"(?!.*\.(tflite|toml)$)[\w+-][\w.+ -]{0,199}")
_LOCK = ".push.lock"
_UNFINISHED = ".push-"
"""Prefix of the folders of pushes and removals in progress, or of those that a crash has ended."""


class PushedFiles:
    """Files of a repository, which clients may read and write. Thread safe, also among processes.

    A lock file orders writers.
    """

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._loader = repository.loader
        self._folder = repository.loader.folder

    def push(self, account: Account, name: str, version: int, data: Bytes, config: bytes | None) -> int:
        """Add a version, and return it: one more than the largest if it is 0. The same files are not added twice.

        Raises:
            HalError: INVALID_ARGUMENT: the name is invalid, the version exists, or the file cannot be imported;
                GENERAL_FAILURE: it cannot be written; RESOURCE_EXHAUSTED_TRANSIENT: a quota of the identity.
        """
        if not _NAME.fullmatch(name):
            raise invalid_argument(f"{name!r} cannot name a model: expected letters, digits, and +, -, ., _ or blanks")
        with self._locked() as found:
            model = found.get(name)
            if model is not None and not _is_numbered(model):
                raise invalid_argument(f"model {name!r} is a single file, which has no versions")
            versions = model.versions if model is not None else {}
            newest = max(versions, default=0)
            if model is not None and self._is_same(model, version or newest, data, config):
                return version or newest
            if version in versions:
                raise invalid_argument(f"model {name!r} has a version {version} with other contents")
            number = version or newest + 1
            if number > LARGEST_VERSION:
                raise invalid_argument(f"model {name!r} has version {newest}, and none can be larger; give a version")
            _check_quotas(account, found, data.size)
            self._check(data, config, model)
            add_version(self._folder.root / name, versions, number, data, config)
        self._repository.check()
        event("model-pushed", model=name, version=number, identity=str(account.identity), bytes=data.size)
        return number

    def remove(self, account: Account, name: str, version: int) -> None:
        """Remove a version of a model, or all of them with the configuration if it is 0.

        Raises:
            HalError: INVALID_ARGUMENT of kind UNKNOWN_HANDLE: there is no such version; GENERAL_FAILURE: it cannot be
                removed.
        """
        with self._locked() as found:
            model = _require(found, name, version)
            for number, file in model.versions.items():
                if version in (0, number):
                    _remove(file.path.parent if _is_numbered(model) else file.path)
            if not version or len(model.versions) == 1:
                model.config.path.unlink(missing_ok=True)
                with suppress(OSError):  # it has other files
                    (self._folder.root / name).rmdir()
        self._repository.check()
        event("model-deleted", model=name, version=version, identity=str(account.identity))

    def pull(self, name: str, version: int) -> tuple[int, Bytes, bytes]:
        """Return a version, by default the largest one, with its contents and the configuration.

        Raises:
            HalError: INVALID_ARGUMENT of kind UNKNOWN_HANDLE: there is no such version; GENERAL_FAILURE: it cannot be
                read.
        """
        try:
            model = _require(self._folder.scan(), name, version)
            number = version or max(model.versions)
            return number, self._folder.read(model.versions[number])[0], self._folder.read_text(model.config)
        except UnusableFileError as error:
            raise general_failure(str(error)) from error
        except OSError as error:
            raise general_failure(f"the folder of models cannot be read: {error.strerror}") from None

    @contextmanager
    def _locked(self) -> Iterator[Mapping[str, FoundModel]]:
        """Keep other writers away. Yield what the folder has."""
        try:
            with open(self._folder.root / _LOCK, "wb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield self._folder.scan()
        except OSError as error:
            raise general_failure(f"the folder of models cannot be written: {error.strerror}") from None

    def _check(self, data: Bytes, config: bytes | None, model: FoundModel | None) -> None:
        """Check that a file can be imported with its configuration, which may be there already."""
        try:
            if config is None:
                options = DEFAULT if model is None else self._folder.read_config(model.config)
            else:
                options = parse_config(config)
            self._loader.check_contents(options, data)
        except ValueError as error:
            raise invalid_argument(f"the configuration cannot be used: {error}") from error
        except (ModelLoadError, UnusableFileError) as error:
            raise invalid_argument(f"the model cannot be used: {error}") from error

    def _is_same(self, model: FoundModel, version: int, data: Bytes, config: bytes | None) -> bool:
        """Return whether a version has these files, so that a client may repeat a push."""
        file = model.versions.get(version)
        if file is None or file.mark is None or file.mark[2] != data.size:
            return False
        with suppress(OSError, UnusableFileError):
            is_there = model.config.mark is not None
            is_configured = config is None or (is_there and self._folder.read_text(model.config) == config)
            return is_configured and np.array_equal(self._folder.read(file)[0], data)
        return False


def add_version(parent: Path, versions: Iterable[int], version: int, data: Bytes, config: bytes | None) -> None:
    """Add a version to others, perhaps with a configuration.

    They appear with one rename, so that a crash leaves both or none. The configuration then moves to its usual place,
    where it outlives the version, and so does that of a push which a crash has ended.
    """
    parent.mkdir(exist_ok=True)
    for old in parent.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(old, ignore_errors=True)
    new = _unfinished(parent)
    new.mkdir()
    try:
        _write(new / MODEL_NAME, data.data)
        if config is not None:
            _write(new / CONFIG_NAME, config)
        new.rename(parent / str(version))
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    for file in brought_configs(parent, [*versions, version]):
        file.path.replace(parent / CONFIG_NAME)


def _write(path: Path, data: bytes | memoryview) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _require(found: Mapping[str, FoundModel], name: str, version: int) -> FoundModel:
    model = found.get(name)
    if model is None or not model.versions:
        raise unknown_model(name, "is not found")
    if version not in (0, *model.versions):
        raise unknown_model(name, f"has no version {version}")
    return model


def _unfinished(parent: Path) -> Path:
    return parent / f"{_UNFINISHED}{secrets.token_hex(8)}"


def _is_numbered(model: FoundModel) -> bool:
    """Return whether the versions of a model have folders of their own."""
    return all(file.path.parent.name == str(n) and file.path.name == MODEL_NAME for n, file in model.versions.items())


def _remove(path: Path) -> None:
    """Remove a file, or a folder with all that it has, in one step for readers."""
    old = _unfinished(path.parent)
    path.rename(old)
    if old.is_dir():
        shutil.rmtree(old, ignore_errors=True)
    else:
        old.unlink()


def _check_quotas(account: Account, found: Mapping[str, FoundModel], size: int) -> None:
    """Check the quotas of an identity, which count all versions of the names that it may push."""
    rules = account.rules
    files = [file for name, model in found.items() if rules.may_push(name) for file in model.versions.values()]
    used = sum(file.mark[2] for file in files if file.mark is not None)
    if rules.pushed_versions is not None and len(files) >= rules.pushed_versions:
        raise account.exceeded("pushed_versions", f"may push names with {len(files)} versions", rules.pushed_versions)
    if rules.pushed_bytes is not None and used + size > rules.pushed_bytes:
        raise account.exceeded("pushed_bytes", f"would have pushed {used + size} bytes", rules.pushed_bytes)
