"""Options that the commands for services share."""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, TypeAlias, TypeVar

import typer

from nnhal.address import PLAIN_SCHEME, RAY_SCHEME, SECURE_SCHEME, Address
from nnhal_tools.cli.errors import CommandError

Number = TypeVar("Number", int, float)

CONNECT_S = 5.0
"""Seconds that a service has to respond to a new connection."""


def at_least(kind: type[Number], minimum: int) -> Callable[[str], Number]:
    """Return a parser of an option's value: a number that is not below a minimum."""

    def parse(text: str) -> Number:
        try:
            value = kind(text)
        except ValueError:
            value = kind(minimum - 1)
        if not minimum <= value < float("inf"):  # also False for nan
            noun = "an integer" if kind is int else "a number"
            raise typer.BadParameter(f"invalid value {text!r}: expected {noun} of at least {minimum}")
        return value

    return parse


def parse_shapes(texts: Sequence[str]) -> dict[str, tuple[int | None, ...]]:
    """Return shapes by the names of inputs. Each text is NAME=SHAPE, such as "image=1,224,?,3".

    Raises:
        CommandError: a text has another form, or two name the same input.
    """
    shapes: dict[str, tuple[int | None, ...]] = {}
    for text in texts:
        name, _, sizes = text.rpartition("=")
        if not name or not re.fullmatch(r"([1-9]\d{0,9}|\?)(,([1-9]\d{0,9}|\?))*", sizes):
            raise CommandError(f"invalid --shape {text!r}: expected NAME=SIZES, for example image=1,224,224,3")
        if name in shapes:
            raise CommandError(f"--shape is given twice for {name!r}")
        shapes[name] = tuple(None if size == "?" else int(size) for size in sizes.split(","))
    return shapes


def parse_address(text: str) -> str:
    """Return an address unchanged if it has the form of one."""
    try:
        Address.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return text


def parse_target(text: str) -> str:
    """Return the address of a service to connect to unchanged if it has the form of one. It may have a scheme."""
    if not text.startswith(RAY_SCHEME):
        parse_address(text.removeprefix(SECURE_SCHEME).removeprefix(PLAIN_SCHEME).rstrip("/"))
    return text


def require_writable(*paths: Path | None) -> None:
    """Check, before a command does its work, that it can write its results to files.

    Raises:
        CommandError: it cannot write one of them.
    """
    for path in filter(None, paths):
        if path.is_dir():
            raise CommandError(f"cannot write {path}: it is a folder")
        if not path.parent.is_dir():
            raise CommandError(f"cannot write {path}: there is no folder {path.parent}")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise CommandError(f"cannot write {path}: permission denied")


def require_writable_folder(folder: Path | None) -> None:
    """Check, before a command does its work, that it can write files to a folder, which need not exist.

    Raises:
        CommandError: it cannot.
    """
    if folder is None:
        return
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise CommandError(f"cannot write to {folder}: {existing} is not a folder")
    if not os.access(existing, os.W_OK):
        raise CommandError(f"cannot write to {folder}: permission denied")


Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]
StateDirectory: TypeAlias = Annotated[
    Path | None,
    typer.Option("--state-dir", metavar="DIR", help="State directory of the service. Default: as for `nnhal serve`."),
]
Target: TypeAlias = Annotated[
    str | None,
    typer.Option(
        parser=parse_target,
        metavar="ADDR",
        help="The service: HOST:PORT, unix:PATH, or grpcs://HOST:PORT for TLS. Default: one that this command starts.",
    ),
]
DeviceName: TypeAlias = Annotated[
    str,
    typer.Option("--device", metavar="NAME", help="The device. [default: the service's first]", show_default=False),
]
ImageFile: TypeAlias = Annotated[
    Path | None, typer.Option("--image", metavar="FILE", help="An image, for a model with one input.")
]
InputFiles: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option(
        "--input",
        metavar="FILE",
        help="An input as .npy; repeat the option for each input, in order. Or all inputs as .npz, by name. "
        "[default: random ones]",
        show_default=False,
    ),
]
InputShapes: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--shape", metavar="NAME=SIZES", help="Shape of an input, for example image=8,224,224,3. ? is unknown."
    ),
]
SignatureKey: TypeAlias = Annotated[
    str | None,
    typer.Option("--signature", metavar="KEY", help="Signature of the model. [default: its main subgraph]"),
]
Fallback: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--fallback/--no-fallback", help="Whether this machine runs operations that the device does not support."
    ),
]
