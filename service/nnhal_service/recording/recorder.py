"""Recorder: chooses executions, and writes each with its values into the archive of its identity.

A record is written before the result is sent, so a crash loses at most those that are being written. Whatever fails,
the execution goes on.
"""

import hashlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from nnhal import wire
from nnhal.errors import HalError, well_formed
from nnhal.recording.members import (
    VERSION,
    RecordingError,
    model_name,
    pack_content,
    pack_member,
    record_name,
)
from nnhal.types import DTYPES, AnyArray, ErrorStatus, ExecutionResult, Memory
from nnhal.version import __version__
from nnhal_driver.execution.buffer import ResolvedBuffer
from nnhal_driver.execution.plan_model import model_of
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_driver.execution.request_binding import BoundRequest, ValidRequest
from nnhal_service import log
from nnhal_service.log import RepeatedEvent, event
from nnhal_service.metrics.calls import MeteredCall, MeteredModel, status_label
from nnhal_service.recording.archive_file import ArchiveFile, RecordingFolder
from nnhal_service.recording.rules import RecordingRules
from nnhal_service.sessions.session import Session
from nnhal_service.settings import Settings

_FAILED = RepeatedEvent("record-failed")
_Arrays: TypeAlias = Sequence[AnyArray | None]


class Recorder:
    """Recorder of a process. Thread safe. Close it when done.

    Args:
        versions: the versions of the backends, for the headers of archives.

    Attributes:
        share: part of the executions to record. Nothing else is looked at for executions while it is 0.
        written, lost, size: records that were written, and that could not be; and their bytes.
    """

    def __init__(self, settings: Settings, versions: Mapping[str, str]) -> None:
        self._folder: RecordingFolder | None = None
        if settings.record is not None:
            self._folder = RecordingFolder(settings.record, settings.record_bytes, settings.record_days * 86400)
        self._versions = versions
        self._lock = threading.Lock()
        self._files: dict[str, ArchiveFile] = {}
        self._models: WeakKeyDictionary[PreparedModel, tuple[str, Mapping[str, int]]] = WeakKeyDictionary()
        self.written, self.lost, self.size = 0, 0, 0
        self.rules = RecordingRules()
        self.share = 0.0
        self.switch(RecordingRules.of(settings))
        if self.share:
            log.audit("record", by="settings", share=self.share, values=self.rules.values)

    @property
    def folder(self) -> str:
        """Folder of the archives; "" if the service has none."""
        return str(self._folder.root) if self._folder is not None else ""

    def switch(self, rules: RecordingRules) -> None:
        """Record by other rules from now on. Without a share, the archives are closed."""
        self.rules, self.share = rules, rules.share if self._folder is not None else 0.0
        if not self.share:
            self.close()

    def close(self) -> None:
        """Close the archives."""
        with self._lock:
            while self._files:
                self._files.popitem()[1].close()

    def begin(self, call: MeteredCall, session: Session, model: MeteredModel) -> None:
        """Have an execution recorded, if it is chosen."""
        rules, identity = self.rules, str(session.identity)
        chosen = random.random() < rules.share and rules.include(identity, model.digest, model.device)
        if chosen and isinstance(model, PreparedModel):
            call.observer = _Observation(self, call, identity, model, rules)

    def write(
        self, identity: str, model: PreparedModel, document: Mapping[str, Any], values: Mapping[str, AnyArray]
    ) -> None:
        """Write a record. If that fails, it is lost, and the log says so."""
        try:
            digest, backends = self._model_facts(model)
            content = pack_content({**document, "model": digest, "backends": backends}, values)
            with self._lock:
                self._append(identity, digest, model, content)
            self.written += 1
        except (OSError, RecordingError, MemoryError, ValueError) as error:
            self.lost += 1
            _FAILED.log(why=str(error))

    def _append(self, identity: str, digest: str, model: PreparedModel, content: bytes) -> None:
        """Write a record into the archive of its identity, with its model if that is new. The caller has the lock."""
        if not self.share or self._folder is None:  # it was switched off meanwhile
            return
        file = self._files.get(identity)
        if file is not None and not file.has_room(len(content)):
            self._files.pop(identity).close()
            file = None
        if file is None:
            header = {"version": VERSION, "identity": identity, "nnhal": __version__, "backends": self._versions}
            file = self._files[identity] = ArchiveFile(self._folder, {**header, "started": time.time()})
            event("recording", identity=identity, file=str(file.path))
        members = pack_member(record_name(file.records + 1), content)
        if digest not in file.models:
            array = {"model": np.frombuffer(_encoded(model), np.uint8)}
            members = pack_member(model_name(digest), pack_content({"digest": digest}, array)) + members
        file.append(members)
        file.models.add(digest)
        file.records += 1
        self.size += len(members)

    def _model_facts(self, model: PreparedModel) -> tuple[str, Mapping[str, int]]:
        """Return the digest of a model, and the number of its operations by backend."""
        facts = self._models.get(model)
        if facts is None:
            digest = model.digest or hashlib.sha256(_encoded(model)).digest()
            backends = Counter(operation.backend for operation in model.placement.operations)
            facts = self._models[model] = digest.hex(), dict(backends)
        return facts


def _encoded(model: PreparedModel) -> bytes:
    """Return the message of a model."""
    return wire.model_message(model_of(model.plan)).SerializeToString()


class _Observation:
    """Execution that is recorded."""

    def __init__(
        self, recorder: Recorder, call: MeteredCall, identity: str, model: PreparedModel, rules: RecordingRules
    ) -> None:
        self._recorder = recorder
        self._call = call
        self._identity = identity
        self._model = model
        self._rules = rules

    def observe(self, request: ValidRequest, run: Callable[[], ExecutionResult]) -> ExecutionResult:
        """Run an execution, and record it. See `ExecutionObserver`."""
        inputs = [
            None if array is None else np.array(array)
            for array in BoundRequest(request, self._model.outputs, private=False).inputs
        ]
        try:
            result = run()
        except BaseException as error:
            status = well_formed(error).status if isinstance(error, HalError) else ErrorStatus.GENERAL_FAILURE
            self._write(inputs, (), status_label(status))
            raise
        if result.output_sufficient_size:
            self._write(inputs, self._outputs(request, result), status_label(ErrorStatus.NONE))
        else:
            self._write(inputs, (), status_label(ErrorStatus.OUTPUT_INSUFFICIENT_SIZE))
        return result

    def _outputs(self, request: ValidRequest, result: ExecutionResult) -> _Arrays:
        """Return the outputs, as views of where the execution has written them."""
        arrays: list[AnyArray | None] = []
        returned = result.returned or (None,) * len(result.output_shapes)
        rows = zip(self._model.outputs, request.output_bindings, result.output_shapes, returned, strict=True)
        for operand, binding, shape, data in rows:
            pool = request.pools[binding.pool] if binding is not None else None
            if isinstance(pool, ResolvedBuffer):
                data = pool.state.value.data if pool.state.value is not None else None
            elif isinstance(pool, Memory) and binding is not None:
                data = pool.view[binding.start : binding.end]
            if data is None:
                arrays.append(None)
                continue
            dtype = DTYPES.get(operand.type)
            size = int(np.prod(shape.dimensions)) * dtype.itemsize if dtype is not None else data.size
            raw = np.ascontiguousarray(data[:size])
            arrays.append(raw if dtype is None else raw.view(dtype).reshape(shape.dimensions))
        return arrays

    def _write(self, inputs: _Arrays, outputs: _Arrays, status: str) -> None:
        call, duration_ns = self._call, time.perf_counter_ns() - self._call.received_ns
        document = {
            "device": self._model.device,
            "path": call.path,
            "started": time.time() - duration_ns / 1e9,
            "duration_ns": duration_ns,
            "queued_ns": call.queued_ns,
            "device_ns": call.device_ns,
            "status": status,
            "inputs": [self._describe(array) for array in inputs],
            "outputs": [self._describe(array) for array in outputs],
            "has_values": self._rules.values,
            "share": self._rules.share,
        }
        values: dict[str, AnyArray] = {}
        if self._rules.values:
            for kind, arrays in (("input", inputs), ("output", outputs)):
                values |= {f"{kind}{i}": array for i, array in enumerate(arrays) if array is not None}
        self._recorder.write(self._identity, self._model, document, values)

    def _describe(self, array: AnyArray | None) -> Mapping[str, Any] | None:
        """Return the shape of a tensor, and its digest if that takes the place of its values."""
        if array is None:
            return None
        described: dict[str, Any] = {"shape": array.shape, "dtype": array.dtype.name}
        if not self._rules.values:
            described["sha256"] = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
        return described
