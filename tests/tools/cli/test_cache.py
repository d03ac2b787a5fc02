"""`nnhal cache` on a directory that exists, is missing, or is unsafe."""

import json
import os
from pathlib import Path

import pytest

from nnhal.v1 import types_pb2
from nnhal_cache.key import load_or_create_key
from nnhal_cache.store import Store
from nnhal_service.server import Server
from nnhal_service.settings import Settings
from tests.cache.entries import flip, load, save, token
from tests.end_to_end.support.raw_client import add_chain, open_raw_session, prepare_request
from tests.tools.cli.command import assert_fails, invoke


@pytest.fixture
def store(tmp_path: Path) -> Store:
    filled = Store(tmp_path / "cache", 2**20)
    save(filled, 1, b"m" * 1200)
    save(filled, 2, identity="another client")
    load(filled, 1)
    return filled


def test_list_shows_entries(store: Store) -> None:
    result = invoke("cache", "list", "--cache-dir", store.layout.root)
    assert "2 entries, 1,213 bytes" in result.stdout.replace("\n", "")
    assert token(1).hex()[:12] in result.stdout and "1,204" in result.stdout
    facts = json.loads(invoke("cache", "list", "--json", "--cache-dir", store.layout.root).stdout)
    assert {fact["token"]: (fact["identity"], fact["bytes"], fact["hits"]) for fact in facts} == {
        token(1).hex(): ("me", 1204, 1),
        token(2).hex(): ("another client", 9, 0),
    }


def test_names_of_models_are_listed(store: Store, tmp_path: Path) -> None:
    """A name survives an export. Tables shorten it, and letters from right to left do not reverse them."""
    assert " model " not in invoke("cache", "list", "--cache-dir", store.layout.root).stdout
    hebrew, long = "\u05d0\u05d1/2", f"{'detector' * 20}/31"
    for number, name in enumerate((hebrew, long), 3):
        save(store, number, name=name)
    invoke("cache", "export", tmp_path / "all.tar", "--cache-dir", store.layout.root)
    invoke("cache", "import", tmp_path / "all.tar", "--cache-dir", tmp_path / "other")
    for root in (store.layout.root, tmp_path / "other"):
        text = invoke("cache", "list", "--cache-dir", root).stdout
        assert " model " in text and "\\u05d0\\u05d1/2" in text and "tector/31" not in text and "…ector/31" in text
        facts = json.loads(invoke("cache", "list", "--json", "--cache-dir", root).stdout)
        assert {fact["name"] for fact in facts} == {"", hebrew, long}


@pytest.mark.parametrize("name", ["a\x1b[31m/1", "a\u202e/1", "x" * 301, 7])
def test_invalid_names_are_damage(store: Store, name: object) -> None:
    (path,) = store.layout.entry_link("me", token(1)).glob("about")
    path.write_text(json.dumps({**json.loads(path.read_text()), "name": name}))
    assert sorted(entry.identity for entry in store.list()) == ["", "another client"]


def test_directory_comes_from_the_environment(store: Store, tmp_path: Path) -> None:
    named = invoke("cache", "list", NNHAL_CACHE_DIR=str(store.layout.root))
    assert "2 entries" in named.stdout
    empty = invoke("cache", "list", XDG_CACHE_HOME=str(tmp_path / "home"))
    assert empty.stdout.replace("\n", "") == f"{tmp_path}/home/nnhal: 0 entries, 0 bytes"
    assert not (tmp_path / "home").exists()


def test_directory_comes_from_the_file_of_settings(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nnhal.toml").write_text(f'cache_dir = "{store.layout.root}"\ncache_key_file = "no-key"\ncache_bytes = 1\n')
    assert "2 entries" in invoke("cache", "list").stdout
    assert "0 entries" in invoke("cache", "list", NNHAL_CACHE_DIR=str(tmp_path / "other")).stdout
    (tmp_path / "another").mkdir()
    assert "0 entries" in invoke("cache", "list", "--cache-dir", tmp_path / "another").stdout
    assert_fails(invoke("cache", "verify"), 1, "no-key")
    invoke("cache", "export", "all.tar")
    assert_fails(invoke("cache", "import", "all.tar"), 1, "the cache has a limit of 1 bytes")
    assert "imported 2 entries" in invoke("cache", "import", "all.tar", "--cache-bytes", 10_000).stdout
    Path("nnhal.toml").write_text("threads = 1")
    assert_fails(invoke("cache", "list"), 2, "nnhal.toml: threads: invalid value 1")


def test_verify_reports_invalid_seals(store: Store) -> None:
    result = invoke("cache", "verify", "--cache-dir", store.layout.root)
    assert result.exit_code == 0
    assert result.stdout == "2 entries, 0 damaged; seals not checked: there is no key\n"
    load_or_create_key(store.layout.root)
    result = invoke("cache", "verify", "--cache-dir", store.layout.root)
    assert result.exit_code == 1
    assert "2 entries, 2 damaged\n" in result.stdout  # they have no seals
    assert f"{token(2).hex()[:12]}  the seal of the model cache is invalid" in result.stdout


def test_verify_prints_json(store: Store) -> None:
    load_or_create_key(store.layout.root)
    result = invoke("cache", "verify", "--json", "--cache-dir", store.layout.root)
    assert result.exit_code == 1
    facts = json.loads(result.stdout)
    assert {entry["token"] for entry in facts["entries"]} == {token(1).hex(), token(2).hex()}
    assert all("the seal of the model cache is invalid" in str(entry["problems"]) for entry in facts["entries"])
    assert facts["unknown_files"] == []
    assert facts["seals_checked"]


def test_verify_accepts_the_seal_of_the_driver(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    with (
        Server(Settings(listen=("127.0.0.1:0",), cache_dir=folder, backends=("CpuRef",))) as server,
        open_raw_session(server.addresses[0]) as raw,
    ):
        request = prepare_request(raw, add_chain(2))
        request.cache.form, request.cache.token = types_pb2.CACHE_FORM_STORED, token(1)
        assert [event.notify.status for event in raw.device.PrepareModel(request)] == [0, 0]
    (entry,) = Store(folder, 2**20).list()
    assert entry.backends.startswith("CpuRef ")
    result = invoke("cache", "verify", "--cache-dir", folder)
    assert (result.exit_code, result.stdout) == (0, "1 entry, 0 damaged\n")
    flip(folder / "generations" / entry.generation / "model", 100)
    assert invoke("cache", "verify", "--cache-dir", folder).exit_code == 1


def test_clear_removes_all_or_named_entries(store: Store) -> None:
    result = invoke("cache", "clear", token(1).hex()[:10].upper(), "--cache-dir", store.layout.root)
    assert result.stdout == "removed 1 entry\n"
    assert [info.token for info in store.list()] == [token(2)]
    assert_fails(
        invoke("cache", "clear", "ffffff", "--cache-dir", store.layout.root), 1, "no token starts with 'ffffff'"
    )
    assert invoke("cache", "clear", "--cache-dir", store.layout.root).stdout == "removed 1 entry\n"
    assert store.list() == []


def test_export_and_import(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "entries.tar"
    some = invoke("cache", "export", file, token(2).hex(), "--cache-dir", store.layout.root)
    assert some.stdout == "exported 1 entry\n"
    assert invoke("cache", "export", file, "--cache-dir", store.layout.root).stdout == "exported 2 entries\n"
    other = tmp_path / "other"
    assert invoke("cache", "import", file, "--cache-dir", other).stdout == "imported 2 entries\n"
    assert load(Store(other, 2**20), 1) == (b"m" * 1200, b"data")
    small = invoke("cache", "import", file, "--cache-dir", tmp_path / "small", "--cache-bytes", 100)
    assert_fails(small, 1, "1204 bytes; the cache has a limit of 100 bytes")
    flip(file, 0)
    assert_fails(invoke("cache", "import", file, "--cache-dir", other), 1, "not an archive of the cache")
    assert_fails(invoke("cache", "export", tmp_path / "no" / "x.tar", "--cache-dir", other), 1, "No such file")


@pytest.mark.parametrize("command", [["list"], ["verify"], ["clear"]])
def test_unsafe_directory_is_rejected(store: Store, command: list[str]) -> None:
    os.chmod(store.layout.root, 0o777)
    assert_fails(invoke("cache", *command, "--cache-dir", store.layout.root), 1, "other users may write")
