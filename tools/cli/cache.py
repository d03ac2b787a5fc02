"""`nnhal cache`: the prepared models that services keep on this machine. Works on the directory; needs no service."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from cache.errors import CacheError
from cache.layout import DEFAULT_BYTES, default_root
from tools.cli.console import make_console
from tools.cli.errors import FAILED, CommandError, reporting_errors

if TYPE_CHECKING:
    from cache.generation import EntryInfo
    from cache.store import Store

_TOKEN_DIGITS = 12
"""Hex digits of a token in tables: enough to name it."""

Directory: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--cache-dir", metavar="DIR", envvar="NNHAL_CACHE_DIR", help="The directory. Default: ~/.cache/nnhal."
    ),
]
KeyFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--cache-key-file",
        metavar="FILE",
        envvar="NNHAL_CACHE_KEY_FILE",
        help="The key, where not the directory's own.",
    ),
]
Tokens: TypeAlias = Annotated[
    list[str] | None, typer.Argument(metavar="TOKEN...", help="Which: hex digits that begin a token. None: all.")
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]

cache = typer.Typer(
    help="List, check, clear and carry the prepared models that are kept on this machine.", no_args_is_help=True
)


@cache.command("list")
@reporting_errors()
def list_(directory: Directory = None, as_json: Json = False) -> None:
    """List the entries, the most recently used first."""
    import json

    with _explaining():
        store = _store(directory)
        entries = store.list()
    if as_json:
        typer.echo(json.dumps([_facts(entry) for entry in entries], indent=2))
    else:
        _show(store.layout.root, entries)


@cache.command()
@reporting_errors()
def verify(directory: Directory = None, key_file: KeyFile = None) -> None:
    """Check files, modes, sizes and seals. The exit code is 1 when something is wrong with an entry.

    What somebody else has put into the directory is named.

    What is wrong harms nobody: a service does not use such an entry, and replaces it when the model is prepared again.
    """
    from cache.verify import strangers
    from cache.verify import verify as verify_entries

    with _explaining():
        store = _store(directory)
        key = _key(store, key_file)
        verdicts = verify_entries(store, key)
        foreign = strangers(store)
    console = make_console()
    bad = [verdict for verdict in verdicts if verdict.problems]
    for verdict in bad:
        for problem in verdict.problems:
            console.print(f"{verdict.token[:_TOKEN_DIGITS]}  {problem}", soft_wrap=True)
    for path in foreign:
        console.print(f"{path} is no part of the cache", soft_wrap=True, markup=False)
    seals = "" if key else "; without a key the seals were not checked"
    console.print(f"{_count(len(verdicts))}, {len(bad)} bad{seals}", soft_wrap=True)
    if bad:
        raise typer.Exit(FAILED)


@cache.command()
@reporting_errors()
def clear(tokens: Tokens = None, directory: Directory = None) -> None:
    """Remove entries."""
    with _explaining():
        store = _store(directory)
        if tokens:
            chosen = _chosen(store, tokens)
            removed = sum(store.clear(None, [entry.token]) for entry in chosen)
        else:
            removed = store.clear(None)
            store.sweep()
    typer.echo(f"removed {_count(removed)}")


@cache.command("export")
@reporting_errors()
def export(
    file: Annotated[Path, typer.Argument(metavar="FILE.tar", help="Where to.")],
    tokens: Tokens = None,
    directory: Directory = None,
) -> None:
    """Write entries to a tar file, to be imported on another machine.

    A service there uses them if it has the same key, software and kind of CPU.
    """
    from cache.archive import export_entries

    with _explaining():
        store = _store(directory)
        count = export_entries(store, file, _chosen(store, tokens or [""]))
    typer.echo(f"exported {_count(count)}")


@cache.command("import")
@reporting_errors()
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE.tar", help="Written by `export`.")],
    directory: Directory = None,
    size: Annotated[
        int,
        typer.Option(
            "--cache-bytes", metavar="N", min=1, envvar="NNHAL_CACHE_BYTES", help="What all may have together."
        ),
    ] = DEFAULT_BYTES,
) -> None:
    """Read entries from a tar file, in place of those that are there."""
    from cache.archive import import_entries

    with _explaining():
        count = import_entries(_store(directory, size), file)
    typer.echo(f"imported {_count(count)}")


@contextmanager
def _explaining() -> Iterator[None]:
    """A cache that cannot be used ends the command."""
    try:
        yield
    except CacheError as error:
        raise CommandError(str(error), FAILED) from error


def _store(directory: Path | None, size: int = DEFAULT_BYTES) -> "Store":
    from cache.store import Store

    return Store(directory or default_root(), size)


def _key(store: "Store", key_file: Path | None) -> bytes | None:
    from cache.key import read_key

    if key_file is not None:
        return read_key(key_file)
    own = store.layout.root / "key"
    return read_key(own) if store.layout.exists() and own.exists() else None


def _chosen(store: "Store", prefixes: Sequence[str]) -> "list[EntryInfo]":
    """The entries whose tokens begin as one of these says.

    Raises:
        CommandError: one begins none.
    """
    entries = store.list()
    for prefix in filter(None, prefixes):
        if not any(entry.token.hex().startswith(prefix.lower()) for entry in entries):
            raise CommandError(f"no entry has a token that begins with {prefix!r}", FAILED)
    return [entry for entry in entries if any(entry.token.hex().startswith(prefix.lower()) for prefix in prefixes)]


def _facts(entry: "EntryInfo") -> dict[str, object]:
    return {
        "token": entry.token.hex(),
        "identity": entry.identity,
        "bytes": entry.size,
        "saved_at": entry.saved_at,
        "last_used_at": entry.last_used_at,
        "hits": entry.hits,
        "backends": entry.backends,
    }


def _show(root: Path, entries: "Sequence[EntryInfo]") -> None:
    import time

    from rich.table import Table

    console = make_console()
    console.print(f"{root}: {_count(len(entries))}, {sum(entry.size for entry in entries):,} bytes", soft_wrap=True)
    if not entries:
        return
    table = Table()
    table.add_column("token", no_wrap=True, min_width=_TOKEN_DIGITS)
    table.add_column("identity")
    for heading in ("bytes", "saved", "used", "hits"):
        table.add_column(heading, justify="right")
    table.add_column("backends")
    now = time.time()
    for entry in entries:
        table.add_row(
            entry.token.hex()[:_TOKEN_DIGITS],
            entry.identity or "?",
            f"{entry.size:,}",
            _ago(now - entry.saved_at),
            _ago(now - entry.last_used_at),
            str(entry.hits),
            entry.backends,
        )
    console.print(table)


def _ago(seconds: float) -> str:
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.0f} {name} ago"
    return f"{max(seconds, 0):.0f} s ago"


def _count(number: int) -> str:
    return f"{number} {'entry' if number == 1 else 'entries'}"
