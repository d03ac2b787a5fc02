"""Rules of recordings and of the shadow: the executions that they take. They are settings that change at run time."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self

from nnhal_service.settings import Settings

if TYPE_CHECKING:  # the supervisor, which reads rules, does not load backends
    from nnhal_service.metrics.calls import MeteredModel


@dataclass(frozen=True, slots=True)
class ExecutionRules:
    """Executions to take: a share of those of some identities, models and devices, by default of all.

    Attributes:
        kind: name of the setting without which there are none. Those of the attributes begin with it.
        missing: why there are none then.
        verb: for results in words.
        models: names in the repository, with or without a version, and first hexadecimal digits of digests.
    """

    kind: ClassVar[str]
    missing: ClassVar[str]
    verb: ClassVar[str]

    share: float = 0.0
    identities: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the rules of the settings, which take nothing if the setting `kind` is missing."""
        if getattr(settings, cls.kind) is None:
            return cls()
        return cls(*(getattr(settings, f"{cls.kind}_{field.name}") for field in fields(cls)))

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Self:
        """Return the rules in a JSON object."""
        lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        return cls(**{**values, **lists})

    @property
    def settings(self) -> dict[str, Any]:
        """The rules as settings."""
        return {f"{self.kind}_{field.name}": getattr(self, field.name) for field in fields(self)}

    def include(self, identity: str, model: "MeteredModel") -> bool:
        """Return whether executions of a model by an identity are taken, as far as the share allows."""
        return (
            (not self.identities or identity in self.identities)
            and (not self.models or self._include_model(model))
            and (not self.devices or model.device in self.devices)
        )

    def _include_model(self, model: "MeteredModel") -> bool:
        names = (model.name, model.name.rpartition("/")[0])
        return model.digest.hex().startswith(self.models) or any(name in self.models for name in names if name)


@dataclass(frozen=True, slots=True)
class RecordingRules(ExecutionRules):
    """Executions to record.

    Attributes:
        values: whether to record values, and not only their shapes and digests.
    """

    kind = "record"
    missing = "the service has no folder for recordings; start it with --record FOLDER"
    verb = "recording"

    values: bool = True


@dataclass(frozen=True, slots=True)
class ShadowRules(ExecutionRules):
    """Executions that the shadow repeats."""

    kind = "shadow"
    missing = "the service has no shadow; start it with --shadow TARGET or --shadow BACKENDS"
    verb = "repeating"


RULES: Mapping[str, type[RecordingRules] | type[ShadowRules]] = {
    rules.kind: rules for rules in (RecordingRules, ShadowRules)
}
"""All rules by their kind."""
