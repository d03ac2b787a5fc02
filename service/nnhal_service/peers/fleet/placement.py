"""Choice of the member of a fleet for a new session. Pure code, which simulations run too: no clock, no network.

A member must not drain, must have the accelerator that the client names, and memory for its models. Of these, the one
with the lowest cost is chosen: its load, less an advantage if it holds a model of the client, or is the member that the
client has reached.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from nnhal_service.peers.fleet.member import Member

WARM_ADVANTAGE = 4.0
"""Load that a member may have more than others if it holds a model of the client. Then the client does not wait for a
preparation, but if the difference is larger, all of its executions would wait."""
HERE_ADVANTAGE = 1.0
"""Load that the member may have more that the client has reached: it need not connect again."""
USED_DISADVANTAGE = 1000.0
"""Load by which members are worse that the client uses already: only if there are no others, it gets one of them."""
SMALL_FLEET = 8
"""Number of members up to which all are compared. Of more, only these are: some that hold a model of the client."""
SHORTLIST = 2
"""Number of members of a larger fleet that are compared besides, chosen at random. All members know loads that are
somewhat old. If they compared more, they would send their clients to the same ones (docs/scale.md)."""


@dataclass(frozen=True, slots=True)
class Needs:
    """Needs of a client.

    Attributes:
        models: keys of the models that it is about to use, see `nnhal_service.peers.fleet.member.model_key`.
        accelerator: name of an accelerator, backend or device; "" for any.
        memory_bytes: memory that its models need; 0 if unknown.
        avoid: ids of members that it uses already, for the same model.
    """

    models: frozenset[str] = frozenset()
    accelerator: str = ""
    memory_bytes: int = 0
    avoid: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SessionPlacement:
    """Result of a choice.

    Attributes:
        member: the chosen one; None if no member will do.
        reason: why, for people.
        refusals: for each member that will not do, by id, why.
    """

    member: Member | None
    reason: str
    refusals: Mapping[str, str] = field(default_factory=dict)


def place(
    members: Sequence[Member], needs: Needs, random: Random, *, here: str = "", sent: Mapping[str, int] | None = None
) -> SessionPlacement:
    """Choose a member for a new session.

    Args:
        members: all members.
        needs: needs of the client.
        random: chooses the members to compare, and between equal ones.
        here: id of the member that the client has reached.
        sent: for each member, by id, the clients that were just sent there and are not in its report yet.
    """
    refusals = {member.id: why for member in members if (why := refusal(member, needs))}
    fit = [member for member in members if member.id not in refusals]
    if not fit:
        whys = "; ".join(f"{id_}: {why}" for id_, why in sorted(refusals.items())[:SMALL_FLEET])
        return SessionPlacement(None, f"none of {len(members)} members will do: {whys}", refusals)
    sent = sent or {}

    def cost(member: Member) -> float:
        load = member.load + sent.get(member.id, 0) / member.cpus
        advantage = WARM_ADVANTAGE * is_warm(member, needs) + HERE_ADVANTAGE * (member.id == here)
        return load - advantage + USED_DISADVANTAGE * (member.id in needs.avoid)

    compared = _shortlist(fit, needs, random, here)
    chosen = min(compared, key=lambda member: (cost(member), random.random()))
    what = "holds a model of the client, " if is_warm(chosen, needs) else ""
    reason = f"{chosen.id} {what}load {chosen.load:.2f} per CPU; {len(compared)} of {len(members)} members compared"
    return SessionPlacement(chosen, reason, refusals)


def refusal(member: Member, needs: Needs) -> str:
    """Return why a member cannot serve a client, or ""."""
    if member.draining:
        return "it drains"
    if needs.accelerator and not member.has(needs.accelerator):
        return f"it has no {needs.accelerator}"
    if needs.memory_bytes > member.free_bytes:
        return f"{member.free_bytes / 2**20:.0f} MiB of memory are free; {needs.memory_bytes / 2**20:.0f} MiB needed"
    return ""


def is_warm(member: Member, needs: Needs) -> bool:
    """Return whether a member holds a model of a client."""
    return not needs.models.isdisjoint(member.models)


def _shortlist(fit: Sequence[Member], needs: Needs, random: Random, here: str) -> Sequence[Member]:
    """Return the members to compare."""
    if len(fit) <= SMALL_FLEET:
        return fit
    kept = [member for member in fit if member.id == here or is_warm(member, needs)]
    kept = kept if len(kept) <= SMALL_FLEET else random.sample(kept, SMALL_FLEET)
    chosen = {member.id for member in kept}
    return [*kept, *(member for member in random.sample(fit, min(SHORTLIST, len(fit))) if member.id not in chosen)]
