"""Choice of a member for a new session."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from nnhal_service.peers.fleet.member import Member
from nnhal_service.peers.fleet.placement import (
    HERE_ADVANTAGE,
    SHORTLIST,
    SMALL_FLEET,
    WARM_ADVANTAGE,
    Needs,
    SessionPlacement,
    place,
)

MODEL = "ab" * 32
NO_NEEDS = Needs()
WARM = Needs(frozenset([MODEL]))


def member(id_: str, sessions: int = 0, *models: str) -> Member:
    return Member(id_, id_, f"{id_}:1", free_bytes=2**30, sessions=sessions, models=frozenset(models))


def chosen(members: list[Member], needs: Needs = NO_NEEDS, here: str = "", **sent: int) -> SessionPlacement:
    return place(members, needs, Random(1), here=here, sent=sent)


def id_of(placement: SessionPlacement) -> str:
    assert placement.member is not None
    return placement.member.id


def test_the_least_loaded_member_is_chosen() -> None:
    assert id_of(chosen([member("a", 3), member("b", 1), member("c", 2)])) == "b"


def test_load_is_that_of_each_cpu() -> None:
    assert id_of(chosen([member("a", 3), replace(member("b", 8), cpus=16)])) == "b"
    assert id_of(chosen([replace(member("a", 0), executions=2), member("b", 1)])) == "b"


def test_clients_that_were_just_sent_count() -> None:
    assert id_of(chosen([member("a", 3), member("b", 1)], b=3)) == "a"


def test_a_member_with_the_model_is_preferred_unless_it_has_much_more_load() -> None:
    few, many = int(WARM_ADVANTAGE) - 1, int(WARM_ADVANTAGE) + 1
    assert id_of(chosen([member("a"), member("b", few, MODEL)], WARM)) == "b"
    assert id_of(chosen([member("a"), member("b", many, MODEL)], WARM)) == "a"
    assert id_of(chosen([member("a"), member("b", few, MODEL)])) == "a", "the client does not need this model"


def test_the_client_stays_if_another_member_is_hardly_better() -> None:
    little = int(HERE_ADVANTAGE)
    assert id_of(chosen([member("a", 1), member("b", little)], here="b")) == "b"
    assert id_of(chosen([member("a"), member("b", little + 1)], here="b")) == "a"


@pytest.mark.parametrize("name", ["Npu", "CpuAcc", "gpu-device"])
def test_only_members_with_the_accelerator_backend_or_device(name: str) -> None:
    has = replace(member("b", 100), accelerators=("Npu",), backends={"CpuAcc": "1"}, devices={"gpu-device": "GPU"})
    found = chosen([member("a"), has], Needs(accelerator=name))
    assert id_of(found) == "b" and found.refusals == {"a": f"it has no {name}"}


def test_members_that_drain_or_lack_memory_are_refused_with_the_reason() -> None:
    members = [replace(member("a"), draining=True), replace(member("b"), free_bytes=2**20), member("c", 9)]
    found = chosen(members, Needs(memory_bytes=2**21))
    assert id_of(found) == "c"
    assert found.refusals == {"a": "it drains", "b": "1 MiB of memory are free; 2 MiB needed"}


def test_no_member_will_do() -> None:
    found = chosen([member("a"), member("b")], Needs(accelerator="Npu"))
    assert found.member is None
    assert found.reason == "none of 2 members will do: a: it has no Npu; b: it has no Npu"
    assert chosen([]).member is None


def test_the_reason_names_the_member_its_load_and_the_model() -> None:
    found = chosen([member("a", 2, MODEL), member("b", 4)], WARM)
    assert found.reason == "a holds a model of the client, load 2.00 per CPU; 2 of 2 members compared"


def test_of_many_members_some_are_compared_so_that_old_loads_do_no_harm() -> None:
    members = [member(f"m{number:03}") for number in range(100)]
    random, counts = Random(7), Counter[str]()
    for _ in range(1000):
        found = place(members, NO_NEEDS, random)
        counts[id_of(found)] += 1
    assert len(counts) > 60 and max(counts.values()) < 150


def test_of_many_members_those_with_the_model_are_always_compared() -> None:
    members = [member(f"m{number:03}") for number in range(100)]
    members[70] = member("m070", 2, MODEL)
    assert all(id_of(place(members, WARM, Random(seed))) == "m070" for seed in range(50))
    members = [member(f"m{number:03}", 0, MODEL) for number in range(100)]
    compared = int(place(members, WARM, Random(1)).reason.split("; ")[1].split()[0])
    assert SMALL_FLEET <= compared <= SMALL_FLEET + SHORTLIST
