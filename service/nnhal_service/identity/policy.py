"""Policy of a service: what each identity may do, and its quotas. It is the table `policy` of the settings."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from nnhal_service.identity.identity import ANONYMOUS, Identity


class IdentityRules(BaseModel):
    """Rights and quotas of one identity. None means the default.

    Attributes:
        connect: whether it may use the service. By default, everyone may who authenticates.
        administer: whether it may use the administrative interface.
        observe: whether it may read metrics and the state of the service over HTTP, which show all identities. By
            default, those may who may administer.
        extensions: whether it may use vendor extensions of backends.
        models: names of the models of the service that it may list and use, with `*` and `?`. By default, all.
        manage_models: whether it may load and unload models by name. By default, those may who may administer; without
            authentication, everyone.
        push_models: names of models that it may push, pull and remove, in the same form. By default, those that it may
            use, if it may load and unload models.
        pushed_versions: quota of versions of these names.
        pushed_bytes: quota of their size.
        sessions: quota of open sessions.
        memory_bytes: quota of Memory objects and buffers.
        cache_bytes: quota of saved models in the store, and of named cache files.
        prepared_models: quota of prepared models.
        executions: quota of executions that run or wait.
        device_seconds: quota of running time in each second, for example 0.5 for half of one core.
        weight: share of the device when others wait, relative to others.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    connect: bool | None = None
    administer: bool | None = None
    observe: bool | None = None
    extensions: bool | None = None
    models: tuple[str, ...] | None = None
    manage_models: bool | None = None
    push_models: tuple[str, ...] | None = None
    pushed_versions: int | None = Field(default=None, ge=0)
    pushed_bytes: int | None = Field(default=None, ge=0)
    sessions: int | None = Field(default=None, ge=1)
    memory_bytes: int | None = Field(default=None, ge=1)
    cache_bytes: int | None = Field(default=None, ge=0)
    prepared_models: int | None = Field(default=None, ge=1)
    executions: int | None = Field(default=None, ge=1)
    device_seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    weight: float | None = Field(default=None, gt=0, le=1e6)

    @property
    def has_quotas(self) -> bool:
        """True if there is a quota that all workers of a service share. That of the cache is on its disk."""
        quotas = (self.sessions, self.memory_bytes, self.prepared_models, self.executions, self.device_seconds)
        return any(quota is not None for quota in quotas)

    def may_use(self, model: str) -> bool:
        """Return whether it may list and use a model by name."""
        return self.models is None or _matches(model, self.models)

    def may_push(self, model: str) -> bool:
        """Return whether a model by name is among those that it may push, as far as names tell."""
        return self.may_use(model) and (self.push_models is None or _matches(model, self.push_models))

    def over(self, other: "IdentityRules") -> "IdentityRules":
        """Return these rules, with those of another object where they have none."""
        return other.model_copy(update=self.model_dump(exclude_none=True))


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


class Policy(BaseModel):
    """IdentityRules by identity.

    Attributes:
        default: rules of identities that have no others.
        identities: rules that differ, by identity, such as "token:alice". A name may be a pattern with `*` and `?`,
            such as "jwt:*". The most specific names come first: the identity itself, then longer patterns.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    default: IdentityRules = IdentityRules()
    identities: dict[str, IdentityRules] = {}

    @model_validator(mode="before")
    @classmethod
    def _require_kinds(cls, value: Any) -> Any:
        """Reject names that no identity can have, so that a rule with a mistake in its name is not without effect."""
        kinds = ("certificate", "spiffe", "token", "jwt", "user")
        identities = value.get("identities", {}) if isinstance(value, dict) else {}
        for name in identities if isinstance(identities, dict) else ():
            kind, colon, rest = str(name).partition(":")
            if name != str(ANONYMOUS) and not (kind in kinds and colon and rest):
                raise ValueError(f"{name!r} is not an identity; expected KIND:NAME with one of {', '.join(kinds)}")
        return value

    def rules(self, identity: Identity) -> IdentityRules:
        """Return the rules of an identity."""
        rules = IdentityRules()
        for each in self._matching(identity):
            rules = rules.over(each)
        return rules

    def _matching(self, identity: Identity) -> Iterator[IdentityRules]:
        """Yield the rules that apply, the most specific first."""
        name = str(identity)
        if name in self.identities:
            yield self.identities[name]
        patterns = [pattern for pattern in self.identities if pattern != name and fnmatchcase(name, pattern)]
        for pattern in sorted(patterns, key=lambda pattern: (-len(pattern), pattern)):
            yield self.identities[pattern]
        yield self.default
