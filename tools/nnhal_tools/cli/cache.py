"""`nnhal cache`: the prepared models that services cache on this machine. Needs no service.

Directory, key and size limit are the settings that `nnhal serve` has in the current folder.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from nnhal_tools.cli.console import (
    display_name,
    format_age,
    make_console,
    print_json,
    print_table,
    print_text,
    show_status,
)
from nnhal_tools.cli.errors import FAILED, CommandError, as_command_errors
from nnhal_tools.cli.options import Json, at_least
from nnhal_tools.cli.services.service_settings import service_settings
from nnhal_tools.tables import DIGITS, make_table

if TYPE_CHECKING:
    from nnhal_cache.entry import EntryInfo
    from nnhal_cache.store import Store
    from nnhal_cache.verify import EntryProblems


Directory: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--cache-dir",
        metavar="DIR",
        help="The directory. Default: cache_dir of nnhal.toml or NNHAL_CACHE_DIR, as for `nnhal serve`; "
        "otherwise ~/.cache/nnhal.",
    ),
]
KeyFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--cache-key-file",
        metavar="FILE",
        help="The key. Default: cache_key_file of nnhal.toml or NNHAL_CACHE_KEY_FILE; otherwise the file in the "
        "directory.",
    ),
]
Tokens: TypeAlias = Annotated[
    list[str] | None, typer.Argument(metavar="TOKEN...", help="The first hex digits of tokens. Default: all entries.")
]

cache = typer.Typer(
    help="List, verify, clear, export and import the prepared models that are cached on this machine.",
    no_args_is_help=True,
)


@cache.command("list")
def list_(directory: Directory = None, as_json: Json = False) -> None:
    """List the entries, most recently used first."""
    with _reporting_cache_errors():
        store = _existing_store(directory)
        entries = store.list()
    if as_json:
        print_json([_to_json(entry) for entry in entries])
    else:
        _show(store.layout.root, entries)


@cache.command()
def verify(directory: Directory = None, key_file: KeyFile = None, as_json: Json = False) -> None:
    """Check files, modes, sizes and seals. The exit code is 1 if an entry has a problem.

    A service does not use an entry with a problem, and replaces it when the model is prepared again. Files that do not
    belong to the cache are listed, too.
    """
    from nnhal_cache.verify import unknown_files, verify_entries

    with _reporting_cache_errors(), show_status("verifying"):
        store = _existing_store(directory)
        key = _key(store, service_settings(cache_key_file=key_file).cache_key_file)
        entries = verify_entries(store, key)
        unknown = unknown_files(store)
    damaged = [entry for entry in entries if entry.problems]
    if as_json:
        facts = {
            "entries": [{"token": entry.token, "problems": entry.problems} for entry in entries],
            "unknown_files": [str(path) for path in unknown],
            "seals_checked": bool(key),
        }
        print_json(facts)
    else:
        _show_problems(len(entries), damaged, unknown, bool(key))
    if damaged:
        raise typer.Exit(FAILED)


def _show_problems(
    count: int, damaged: "Sequence[EntryProblems]", unknown: Sequence[Path], are_seals_checked: bool
) -> None:
    console = make_console()
    for entry in damaged:
        for problem in entry.problems:
            print_text(console, f"{entry.token[:DIGITS]}  {problem}")
    for path in unknown:
        print_text(console, f"{path} does not belong to the cache")
    seals = "" if are_seals_checked else "; seals not checked: there is no key"
    print_text(console, f"{_count(count)}, {len(damaged)} damaged{seals}")


@cache.command()
def clear(tokens: Tokens = None, directory: Directory = None) -> None:
    """Remove entries."""
    with _reporting_cache_errors():
        store = _existing_store(directory)
        if tokens:
            removed = sum(store.clear(None, [entry.token]) for entry in _select(store, tokens))
        else:
            removed = store.clear(None)
            store.sweep()
    typer.echo(f"removed {_count(removed)}")


@cache.command("export")
def export(
    file: Annotated[Path, typer.Argument(metavar="FILE.tar", help="The file to write.")],
    tokens: Tokens = None,
    directory: Directory = None,
) -> None:
    """Write entries to a tar file, for import on another machine.

    A service on that machine uses them if it has the same key, software and type of CPU.
    """
    from nnhal_cache.archive import export_entries

    with _reporting_cache_errors(), show_status(f"writing {file}"):
        store = _existing_store(directory)
        count = export_entries(store, file, _select(store, tokens or [""]))
    typer.echo(f"exported {_count(count)}")


@cache.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE.tar", help="A file that `export` wrote.")],
    directory: Directory = None,
    size: Annotated[
        int | None,
        typer.Option(
            "--cache-bytes",
            metavar="N",
            parser=at_least(int, 1),
            help="Size limit of the cache in bytes. Default: cache_bytes of nnhal.toml or NNHAL_CACHE_BYTES; "
            "otherwise 4 GiB.",
        ),
    ] = None,
) -> None:
    """Read entries from a tar file, and replace existing ones."""
    from nnhal_cache.archive import import_entries

    with _reporting_cache_errors(), show_status(f"reading {file}"):
        count = import_entries(_store(directory, service_settings(cache_bytes=size).cache_bytes), file)
    typer.echo(f"imported {_count(count)}")


def _reporting_cache_errors() -> AbstractContextManager[None]:
    from nnhal_cache.errors import CacheError

    return as_command_errors(CacheError, exit_code=FAILED)


def _store(directory: Path | None, size: int | None = None) -> "Store":
    cache_dir = service_settings(cache_dir=directory).cache_dir
    from nnhal_cache.layout import DEFAULT_BYTES
    from nnhal_cache.store import Store

    return Store(cache_dir, DEFAULT_BYTES if size is None else size)


def _existing_store(directory: Path | None) -> "Store":
    """Return the store in a directory that an option names, or in the default one, which need not exist yet."""
    if directory is not None and not directory.exists():
        raise CommandError(f"--cache-dir: there is no folder {directory}")
    return _store(directory)


def _key(store: "Store", key_file: Path | None) -> bytes | None:
    from nnhal_cache.key import read_key

    if key_file is not None:
        return read_key(key_file)
    path = store.layout.root / "key"
    return read_key(path) if store.layout.exists() and path.exists() else None


def _select(store: "Store", prefixes: Sequence[str]) -> "list[EntryInfo]":
    """Return the entries whose tokens start with one of the prefixes."""
    entries = store.list()
    for prefix in filter(None, prefixes):
        if not any(entry.token.hex().startswith(prefix.lower()) for entry in entries):
            raise CommandError(f"no token starts with {prefix!r}", FAILED)
    starts = tuple(prefix.lower() for prefix in prefixes)
    return [entry for entry in entries if entry.token.hex().startswith(starts)]


def _to_json(entry: "EntryInfo") -> dict[str, object]:
    return {
        "token": entry.token.hex(),
        "identity": entry.identity,
        "name": entry.name,
        "bytes": entry.size,
        "saved_at": entry.saved_at,
        "last_used_at": entry.last_used_at,
        "hits": entry.hits,
        "backends": entry.backends,
        "origin": entry.origin,
    }


def _show(root: Path, entries: "Sequence[EntryInfo]") -> None:
    import time

    console = make_console()
    print_text(console, f"{root}: {_count(len(entries))}, {sum(entry.size for entry in entries):,} bytes")
    if not entries:
        return
    numbers = ("bytes", "saved", "used", "hits")
    names = ["model"] if any(entry.name for entry in entries) else []
    table = make_table("token", *names, "identity", *numbers, "backends", "from", right=numbers)
    now = time.time()
    for entry in entries:
        table.add_row(
            entry.token.hex()[:DIGITS],
            *(display_name(entry.name) for _ in names),
            entry.identity or "?",
            f"{entry.size:,}",
            f"{format_age(now - entry.saved_at)} ago",
            f"{format_age(now - entry.last_used_at)} ago",
            str(entry.hits),
            entry.backends,
            entry.origin or "here",
        )
    print_table(console, table)


def _count(number: int) -> str:
    return f"{number} {'entry' if number == 1 else 'entries'}"
