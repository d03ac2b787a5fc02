"""Reader of archives: the records of a file, or of all files below a folder, in the order of their executions."""

import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nnhal import wire
from nnhal.recording.members import HEADER, VERSION, RecordingError, record_name, unpack_content
from nnhal.types import AnyArray, Model
from nnhal.v1 import types_pb2

SUFFIX = ".tar"
"""Suffix of archives."""
_MODELS, _RECORDS = "models/", "records/"
_MODEL = "model"
"""Name of the array with the message of a model."""


@dataclass(frozen=True)
class _Place:
    """Place of a member: its file, and its bytes there."""

    path: Path
    offset: int
    size: int

    def read(self) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        """Return the content of the member."""
        with self.path.open("rb") as file:
            file.seek(self.offset)
            return unpack_content(file.read(self.size))


@dataclass(frozen=True)
class Record:
    """One recorded execution, see docs/recording.md.

    Attributes:
        name: file and number of the record.
        started: seconds since 1970 of the call.
        duration_ns: from the receipt of the call to its result.
        queued_ns, device_ns: the time that it waited for a slot, and that it ran.
        status: "ok", or the name of the error in lower case.
        backends: number of operations by backend.
        shapes: the shapes of inputs and outputs; None for an omitted one.
        has_values: whether it has its values, and not only their digests.
        share: part of the executions that was recorded then.
    """

    name: str
    identity: str
    model: str
    device: str
    path: str
    started: float
    duration_ns: int
    queued_ns: int
    device_ns: int
    status: str
    backends: Mapping[str, int]
    inputs: Sequence[Mapping[str, Any] | None]
    outputs: Sequence[Mapping[str, Any] | None]
    has_values: bool
    share: float
    place: _Place = field(repr=False)

    def values(self) -> tuple[list[AnyArray | None], list[AnyArray | None]]:
        """Return the inputs and the outputs; None for an omitted one.

        Raises:
            RecordingError: the record has no values, or is damaged.
        """
        if not self.has_values:
            raise RecordingError(f"{self.name} has no values; the service recorded with --no-record-values")
        arrays = self.place.read()[1]
        return (
            [arrays.get(f"input{i}") for i in range(len(self.inputs))],
            [arrays.get(f"output{i}") for i in range(len(self.outputs))],
        )


class Archive:
    """Recorded executions of one identity.

    Args:
        path: an archive, or a folder of archives.
        identity: whose records to read, for example "token:alice". Needed if there are records of several.

    Attributes:
        records: the records in the order of their executions.
        problems: what is damaged or lost, as text.

    Raises:
        RecordingError: there are no archives, they belong to others, or are of a newer version.
        OSError: a file cannot be read.
    """

    def __init__(self, path: Path, identity: str = "") -> None:
        self.problems: list[str] = []
        self._models: dict[str, _Place] = {}
        records: list[Record] = []
        found: set[str] = set()
        for file in _archives(path):
            header, members = self._open(file)
            if header is None:
                continue
            found.add(header["identity"])
            if header["identity"] == (identity or header["identity"]):
                records += self._read(file, header["identity"], members)
        if identity and found and identity not in found:
            raise RecordingError(f"{path} has records of {', '.join(sorted(found))}; expected {identity}")
        if len(found) > 1 and not identity:
            raise RecordingError(f"{path} has records of {', '.join(sorted(found))}; name one with --identity")
        self.records = sorted(records, key=lambda record: record.started)

    def model(self, digest: str) -> Model:
        """Return the model with a digest.

        Raises:
            RecordingError: it is lost or damaged.
        """
        if digest not in self._models:
            raise RecordingError(f"the model {digest[:12]} is not in the archive")
        message = types_pb2.Model.FromString(self._models[digest].read()[1][_MODEL].tobytes())
        return wire.to_model(message)

    def _open(self, path: Path) -> tuple[dict[str, Any] | None, Iterator[tuple[str, _Place]]]:
        """Return the header of a file, and its other members."""
        members = _members(path)
        name, place = next(members, ("", None))
        if name != HEADER or place is None:
            self.problems.append(f"{path}: the start is damaged, or it is not a recording")
            return None, members
        try:
            header = place.read()[0]
        except RecordingError as error:
            self.problems.append(f"{path}: {name} is {error}")
            return None, members
        if header["version"] > VERSION:
            raise RecordingError(
                f"{path} has version {header['version']} of the format; this nnhal reads up to {VERSION}. Update nnhal"
            )
        return header, members

    def _read(self, path: Path, identity: str, members: Iterator[tuple[str, _Place]]) -> Iterator[Record]:
        """Yield the records of a file, and note its models and what is damaged."""
        number = 0
        for name, place in members:
            try:
                document = place.read()[0]
                if name.startswith(_MODELS):
                    self._models.setdefault(document["digest"], place)
                elif name.startswith(_RECORDS):
                    for lost in range(number + 1, number := int(Path(name).stem)):
                        self.problems.append(f"{path}: {record_name(lost)} is lost")
                    yield Record(name=f"{path.stem}/{number}", identity=identity, place=place, **document)
            except RecordingError as error:
                self.problems.append(f"{path}: {name} is {error}")
            except (TypeError, ValueError, KeyError) as error:
                self.problems.append(f"{path}: {name} has an unexpected form: {error}")


def _archives(path: Path) -> list[Path]:
    """Return the archives of a path."""
    if not path.exists():
        raise RecordingError(f"there is no {path}")
    files = sorted(path.rglob(f"*{SUFFIX}")) if path.is_dir() else [path]
    if not files:
        raise RecordingError(f"there are no archives (*{SUFFIX}) below {path}")
    return files


def _members(path: Path) -> Iterator[tuple[str, _Place]]:
    """Yield the members of a tar file. Those whose header is damaged are left out, and so is a truncated last one."""
    try:
        with tarfile.open(path, "r:", ignore_zeros=True) as file:
            for member in file:
                yield member.name, _Place(path, member.offset_data, member.size)
    except tarfile.ReadError:  # nothing in it has the form of a member, or the last one is truncated
        return
