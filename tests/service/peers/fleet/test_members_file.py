"""File with the members of a fleet."""

import os
import time
from pathlib import Path

import pytest

from nnhal_service.peers.fleet.member import Member, MemberTable
from nnhal_service.peers.fleet.members_file import STALE_S, MembersFile, write_members

MEMBER = Member("a", "host", "10.0.0.1:50051", cpus=4, devices={"nnhal": "CPU"}, models=frozenset(["ab"]))
TABLE = MemberTable("a", (MEMBER, Member("b", "other", "10.0.0.2:50051", accelerators=("Npu",))))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file = MembersFile(tmp_path / "members.json")
    assert file.table() is None and file.is_stale
    write_members(tmp_path / "members.json", TABLE)
    assert file.table() == TABLE and not file.is_stale
    write_members(tmp_path / "members.json", MemberTable("a", (MEMBER,)))
    assert file.table() == MemberTable("a", (MEMBER,))
    assert os.listdir(tmp_path) == ["members.json"]


def test_fields_of_later_versions_are_ignored() -> None:
    assert Member.from_plain({**MEMBER.to_plain(), "colour": "red"}) == MEMBER


@pytest.mark.parametrize("text", ["", "{", "[]", '{"here": "a"}', '{"here": "a", "members": [{"id": "b"}]}'])
def test_a_damaged_file_counts_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "members.json").write_text(text)
    assert MembersFile(tmp_path / "members.json").table() is None


def test_an_old_file_is_stale_but_read(tmp_path: Path) -> None:
    path = tmp_path / "members.json"
    write_members(path, TABLE)
    later = MembersFile(path, lambda: time.time() + STALE_S + 1)
    assert later.is_stale and later.table() == TABLE
