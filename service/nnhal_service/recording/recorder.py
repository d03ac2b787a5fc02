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
from nnhal_service.recording.rules import RecordingRules, ShadowRules
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
        recording, repetition: the executions to record, and those that the shadow repeats.
        is_active: whether executions are recorded or repeated. Nothing else is looked at for executions while not.
    """

    def __init__(self, settings: Settings, versions: Mapping[str, str], shadow: ShadowSender | None = None) -> None:
        self.archives = Archives.of(settings, {"backends": versions})
        self._shadow = shadow
        self.recording, self.repetition = RecordingRules(), ShadowRules()
        for rules in (RecordingRules.of(settings), ShadowRules.of(settings)):
            self.switch(rules)
        if self.recording.share:
            log.audit("record", by="settings", share=self.recording.share, values=self.recording.values)
        if self.repetition.share:
            log.audit("shadow", by="settings", to=settings.shadow, share=self.repetition.share)

    def switch(self, rules: RecordingRules | ShadowRules) -> None:
        """Record or repeat by other rules from now on. Without a share, the archives are closed."""
        if isinstance(rules, ShadowRules):
            self.repetition = rules if self._shadow is not None else ShadowRules()
        elif self.archives is not None:
            self.recording = rules
            if rules.share:
                self.archives.open()
            else:
                self.archives.close()
        self.is_active = self.recording.share > 0 or self.repetition.share > 0

    def close(self) -> None:
        """Close the archives."""
        if self.archives is not None:
            self.archives.close()

    def begin(self, call: MeteredCall, session: Session, model: MeteredModel) -> None:
        """Have an execution recorded or repeated, if it is chosen."""
        rules, repetition, identity = self.recording, self.repetition, str(session.identity)
        receivers: list[Callable[[ObservedExecution], None]] = []
        includes = rules.share > 0 and rules.include(identity, model)
        if includes and random.random() < rules.share:
            receivers.append(partial(self._record, rules))
        if self._shadow is not None and random.random() < repetition.share and repetition.include(identity, model):
            may_keep = includes and rules.values
            receivers.append(partial(self._shadow.send, share=repetition.share, may_keep=may_keep))
        if receivers and isinstance(model, PreparedModel):
            call.observer = Observation(call, identity, model, receivers)

    def _record(self, rules: RecordingRules, observed: ObservedExecution) -> None:
        """Write a record."""
        assert self.archives is not None
        with self.archives.tolerating_loss():
            document = observed.document(rules.share, has_values=rules.values)
            values = observed.values if rules.values else {}
            self.archives.write(observed.identity, document, values, partial(encoded_model, observed.model))
