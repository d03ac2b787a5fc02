"""Workers, as the supervisor knows them, and their answers to the admin process."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from google.protobuf.message import DecodeError

from nnhal_service.log import event
from nnhal_service.operating.admin.actions import AdminError
from nnhal_service.operating.admin.control import ask_worker

TIMEOUT_S = 2.0
"""Seconds that a worker may take for an answer."""


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class KnownWorker:
    """A worker, as the supervisor knows it."""

    slot: int
    generation: int
    pid: int
    state: str
    started_at: float
    restarts: int
    last_end: str
    folder: str

    @property
    def is_current(self) -> bool:
        """True if it takes part in the service; false for one that has been replaced and finishes its work."""
        return self.state != "retiring"


def known_workers(status: Mapping[str, Any]) -> list[KnownWorker]:
    """Return the workers in the status of the supervisor, by number and generation."""
    return sorted((KnownWorker(**each) for each in status["workers"]), key=lambda each: (each.slot, each.generation))


def ask(command: str, decode: Callable[[bytes], T], worker: KnownWorker) -> T | None:
    """Return the answer of a worker to a command; None if it does not answer, or its answer is damaged."""
    if worker.state == "starting":
        return None
    try:
        return decode(ask_worker(Path(worker.folder), command, TIMEOUT_S))
    except (AdminError, OSError, ValueError, DecodeError) as error:
        event("worker-silent", logging.DEBUG, worker=worker.slot, why=str(error))
        return None
