"""Recorder: chooses executions, and has each written with its values into the archive of its identity, or repeated.

A record is written before the result is sent, so a crash loses at most those that are being written. Whatever fails,
the execution goes on.
"""

import random
from collections.abc import Callable, Mapping
from functools import partial

from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_service import log
from nnhal_service.metrics.calls import MeteredCall, MeteredModel
from nnhal_service.recording.archives import Archives
from nnhal_service.recording.observation import Observation, ObservedExecution, encoded_model
from nnhal_service.recording.rules import RecordingRules
from nnhal_service.recording.shadow.sender import ShadowSender
from nnhal_service.sessions.session import Session
from nnhal_service.settings import Settings


class Recorder:
    """Recorder of a process. Thread safe. Close it when done.

    Args:
        versions: the versions of the backends, for the headers of archives.
        shadow: has executions repeated elsewhere; None if there is no shadow.

    Attributes:
        archives: the archives; None if the service has no folder for them.
        share: part of the executions to record.
        is_active: whether executions are recorded or repeated. Nothing else is looked at for executions while not.
    """

    def __init__(self, settings: Settings, versions: Mapping[str, str], shadow: ShadowSender | None = None) -> None:
        self.archives = Archives.of(settings, {"backends": versions})
        self._shadow = shadow
        self.switch(RecordingRules.of(settings))
        if self.share:
            log.audit("record", by="settings", share=self.share, values=self.rules.values)

    def switch(self, rules: RecordingRules) -> None:
        """Record by other rules from now on. Without a share, the archives are closed."""
        self.rules, self.share = rules, 0.0
        if self.archives is not None:
            self.share = rules.share
            if self.share:
                self.archives.open()
            else:
                self.archives.close()
        self.is_active = self.share > 0 or self._shadow is not None

    def close(self) -> None:
        """Close the archives."""
        if self.archives is not None:
            self.archives.close()

    def begin(self, call: MeteredCall, session: Session, model: MeteredModel) -> None:
        """Have an execution recorded or repeated, if it is chosen."""
        rules, identity = self.rules, str(session.identity)
        receivers: list[Callable[[ObservedExecution], None]] = []
        includes = self.share > 0 and rules.include(identity, model.digest, model.device)
        if includes and random.random() < rules.share:
            receivers.append(partial(self._record, rules))
        if self._shadow is not None and random.random() < self._shadow.share:
            receivers.append(partial(self._shadow.send, may_keep=includes and rules.values))
        if receivers and isinstance(model, PreparedModel):
            call.observer = Observation(call, identity, model, receivers)

    def _record(self, rules: RecordingRules, observed: ObservedExecution) -> None:
        """Write a record."""
        assert self.archives is not None
        with self.archives.tolerating_loss():
            document = observed.document(rules.share, has_values=rules.values)
            values = observed.values if rules.values else {}
            self.archives.write(observed.identity, document, values, partial(encoded_model, observed.model))
