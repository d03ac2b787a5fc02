"""Rules of recording: which executions, and what of them. They are settings that an operator changes at run time."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from nnhal_service.settings import Settings

_PREFIX = "record_"
"""Start of the names of the settings. The name of an attribute follows."""


@dataclass(frozen=True, slots=True)
class RecordingRules:
    """Executions to record: a share of those of some identities, models and devices, by default of all.

    Attributes:
        models: first hexadecimal digits of their digests.
        values: whether to record values, and not only their shapes and digests.
    """

    share: float = 0.0
    identities: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    values: bool = True

    @staticmethod
    def of(settings: Settings) -> "RecordingRules":
        """Return the rules of the settings. Without a folder, nothing is recorded."""
        if settings.record is None:
            return RecordingRules()
        return RecordingRules(*(getattr(settings, _PREFIX + field.name) for field in fields(RecordingRules)))

    @staticmethod
    def read(values: Mapping[str, Any]) -> "RecordingRules":
        """Return the rules in a JSON object."""
        lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        return RecordingRules(**{**values, **lists})

    @property
    def settings(self) -> dict[str, Any]:
        """The rules as settings."""
        return {_PREFIX + field.name: getattr(self, field.name) for field in fields(self)}

    def include(self, identity: str, digest: bytes, device: str) -> bool:
        """Return whether executions by an identity are recorded, of the model with a digest on a device."""
        return (
            (not self.identities or identity in self.identities)
            and (not self.models or digest.hex().startswith(self.models))
            and (not self.devices or device in self.devices)
        )
