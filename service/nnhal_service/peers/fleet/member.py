"""Records of the members of a fleet: services on several hosts that send new sessions to each other."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter


@dataclass(frozen=True, slots=True)
class Member:
    """Report of a member on itself.

    Attributes:
        id: its id, which no other member has.
        address: address for clients: HOST:PORT.
        generation: number of starts of the service, with which its id stays the same.
        cpus: number of CPUs that it may use, at least 1.
        free_bytes: memory of the host that is available.
        executions: number of executions and preparations that run or wait.
        backends: versions of the backends that are ready, by id.
        models: keys of models that it holds, see `model_key`.
        known: number of the members that it knows, with itself.
        wait_s: mean time in seconds that executions have lately waited for a slot.
    """

    id: str
    host: str
    address: str
    version: str = ""
    generation: int = 0
    draining: bool = False
    cpus: int = 1
    free_bytes: int = 0
    sessions: int = 0
    executions: int = 0
    devices: Mapping[str, str] = field(default_factory=dict)
    backends: Mapping[str, str] = field(default_factory=dict)
    accelerators: tuple[str, ...] = ()
    models: frozenset[str] = frozenset()
    known: int = 0
    wait_s: float = 0.0

    @property
    def load(self) -> float:
        """Sessions and work in progress for each CPU."""
        return (self.sessions + self.executions) / self.cpus

    def has(self, name: str) -> bool:
        """Return whether an accelerator, a backend or a device has a name."""
        return name in self.accelerators or name in self.backends or name in self.devices

    def to_plain(self) -> dict[str, Any]:
        """Return the record as values of JSON."""
        values: dict[str, Any] = _MEMBERS.dump_python(self, mode="json")
        return values

    @staticmethod
    def from_plain(values: Mapping[str, Any]) -> "Member":
        """Return the record with some values. Those that this version does not know are ignored.

        Raises:
            ValueError: a value is missing or has a wrong type.
        """
        return _MEMBERS.validate_python(values)


def model_key(digest: str) -> str:
    """Return the key by which members tell each other of a model: 8 bytes of a hexadecimal digest or token."""
    return digest[:16]


_MEMBERS = TypeAdapter(Member)


@dataclass(frozen=True, slots=True)
class MemberTable:
    """The members of a fleet.

    Attributes:
        here: id of the member whose workers read the table.
        members: all members, also `here`, by id.
        refusal: why the fleet takes no new clients, or "".
    """

    here: str
    members: tuple[Member, ...]
    refusal: str = ""

    def to_json(self) -> bytes:
        """Return the table as JSON."""
        return _TABLES.dump_json(self)

    @staticmethod
    def from_json(text: bytes) -> "MemberTable":
        """Return the table that some JSON describes.

        Raises:
            ValueError: a value is missing or has a wrong type.
        """
        return _TABLES.validate_json(text)


_TABLES = TypeAdapter(MemberTable)
