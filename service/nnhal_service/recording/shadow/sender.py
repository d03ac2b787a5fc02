"""The shadow as workers use it: they send it executions, and never wait for it.

An execution is a packet: a JSON object with its record, a memfd with the model, and one with the values. What the queue
of the socket has no room for is dropped and counted.
"""

import os
import socket
import threading
from collections.abc import Sequence

import numpy as np

from nnhal.lru import LruDict
from nnhal.types import AnyArray
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_service.metrics import catalog
from nnhal_service.metrics.calls import MODEL_DIGITS, OTHER
from nnhal_service.metrics.series import OK
from nnhal_service.metrics.worker_metrics import WorkerMetrics
from nnhal_service.packets import send
from nnhal_service.recording.observation import ObservedExecution, encoded_model

DROPPED = "dropped"
MAX_BYTES = 2**26
"""Largest values of one execution. The queue has room for about a hundred executions."""
_MAX_MODELS = 32
"""Number of models that a worker keeps in memory for the shadow."""
_MAX_LABELS = 1000


class ShadowSender:
    """Sender of one worker. Thread safe.

    Args:
        executions: the socket to the process that repeats them.
        metrics: counts what is dropped.
    """

    def __init__(self, executions: socket.socket, metrics: WorkerMetrics) -> None:
        self._executions = executions
        self._metrics = metrics
        self._lock = threading.Lock()
        self._models: LruDict[str, int] = LruDict(_MAX_MODELS)
        self._labels: set[str] = set()

    def send(self, observed: ObservedExecution, *, share: float, may_keep: bool) -> None:
        """Have an execution repeated, unless it failed. Whatever happens, it goes on.

        Args:
            observed: the execution.
            share: part of the executions that are repeated.
            may_keep: whether the repetition may be recorded if it differs.
        """
        if observed.status != OK:
            return
        label = OTHER
        try:
            document = observed.document(share)
            label = self._label(document["model"])
            arrays = list(observed.values.values())
            if sum(array.nbytes for array in arrays) > MAX_BYTES:
                raise ValueError("too large")
            message = {"record": document, "identity": observed.identity, "may_keep": may_keep, "label": label}
            values = _memory_file(arrays)
            try:
                with self._lock:  # another thread might close the descriptor of the model
                    is_sent = send(self._executions, message, [self._model(document["model"], observed.model), values])
            finally:
                os.close(values)
        except (OSError, MemoryError, ValueError):
            is_sent = False
        if not is_sent:
            self._metrics.count(catalog.SHADOW, label, DROPPED)

    def _model(self, digest: str, model: PreparedModel) -> int:
        """Return a file with a model. The caller has the lock."""
        if digest not in self._models:
            evicted = self._models.put(digest, _memory_file([np.frombuffer(encoded_model(model), np.uint8)]))
            if evicted is not None:
                os.close(evicted[1])
        return self._models.use(digest)

    def _label(self, digest: str) -> str:
        """Return the label of a model for metrics, whose number is bounded."""
        label = digest[:MODEL_DIGITS]
        if label not in self._labels:
            if len(self._labels) >= _MAX_LABELS:
                return OTHER
            self._labels.add(label)
        return label


def _memory_file(arrays: Sequence[AnyArray]) -> int:
    """Return a file in memory with the bytes of some arrays."""
    descriptor = os.memfd_create("nnhal-shadow")
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            for array in arrays:
                file.write(array.tobytes())
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
