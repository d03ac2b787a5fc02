"""Archives that a process writes: one for each identity."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from nnhal.recording.members import VERSION, RecordingError, model_name, pack_content, pack_member, record_name
from nnhal.types import AnyArray
from nnhal.version import __version__
from nnhal_service.log import RepeatedEvent, event
from nnhal_service.recording.archive_file import ArchiveFile, RecordingFolder
from nnhal_service.settings import Settings

_FAILED = RepeatedEvent("record-failed")


class Archives:
    """Archives of a process, in a folder. Thread safe. Close them when done.

    Args:
        header: further facts for the headers of archives.

    Attributes:
        written, lost, size: records that were written, and that could not be; and their bytes.
    """

    def __init__(self, folder: RecordingFolder, header: Mapping[str, Any]) -> None:
        self.folder = folder
        self._header = {"version": VERSION, "nnhal": __version__, **header}
        self._lock = threading.Lock()
        self._files: dict[str, ArchiveFile] = {}
        self._is_open = True
        self.written, self.lost, self.size = 0, 0, 0

    @staticmethod
    def of(settings: Settings, header: Mapping[str, Any]) -> "Archives | None":
        """Return the archives in the folder of the settings; None if there is none."""
        if settings.record is None:
            return None
        folder = RecordingFolder(settings.record, settings.record_bytes, settings.record_days * 86400)
        return Archives(folder, header)

    def write(
        self,
        identity: str,
        document: Mapping[str, Any],
        values: Mapping[str, AnyArray],
        encode_model: Callable[[], bytes],
    ) -> None:
        """Write a record, with its model if the archive does not have it yet.

        Args:
            identity: the identity of its client.
            document: the JSON object of the record.
            values: its arrays by name.
            encode_model: returns the message of its model.

        Raises:
            OSError, RecordingError: it cannot be written.
        """
        content = pack_content(document, values)
        with self._lock:
            if self._is_open:  # else they were closed meanwhile
                self._append(identity, document["model"], content, encode_model)

    @contextmanager
    def tolerating_loss(self) -> Iterator[None]:
        """Have the work of a block go on without its record if that cannot be written. The log says so."""
        try:
            yield
        except (OSError, RecordingError, MemoryError, ValueError) as error:
            self.lost += 1
            _FAILED.log(why=str(error))

    def _append(self, identity: str, digest: str, content: bytes, encode_model: Callable[[], bytes]) -> None:
        """Append a record to the archive of its identity. The caller has the lock."""
        file = self._files.get(identity)
        if file is not None and not file.has_room(len(content)):
            self._files.pop(identity).close()
            file = None
        if file is None:
            header = {**self._header, "identity": identity, "started": time.time()}
            file = self._files[identity] = ArchiveFile(self.folder, header)
            event("recording", identity=identity, file=str(file.path))
        members = pack_member(record_name(file.records + 1), content)
        if digest not in file.models:
            array = {"model": np.frombuffer(encode_model(), np.uint8)}
            members = pack_member(model_name(digest), pack_content({"digest": digest}, array)) + members
        file.append(members)
        file.models.add(digest)
        file.records += 1
        self.written += 1
        self.size += len(members)

    def open(self) -> None:
        """Accept records again after `close`."""
        self._is_open = True

    def close(self) -> None:
        """Close the files, and ignore further records."""
        with self._lock:
            self._is_open = False
            while self._files:
                self._files.popitem()[1].close()
