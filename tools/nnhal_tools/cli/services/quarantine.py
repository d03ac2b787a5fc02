"""`nnhal quarantine`: the models that have crashed services on this machine. Needs no service."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nnhal_tools.cli.console import make_console, print_json, print_table, print_text
from nnhal_tools.cli.errors import FAILED, as_command_errors
from nnhal_tools.cli.options import Json, StateDirectory
from nnhal_tools.cli.services.service_settings import service_settings
from nnhal_tools.tables import DIGITS, counted, make_table

if TYPE_CHECKING:
    from nnhal_service.quarantine import QuarantineFile


quarantine = typer.Typer(
    help="List and clear the models that have crashed a worker of a service. After the first crash, a model is kept "
    "from the backend that crashed; after the second one, it is refused.",
    no_args_is_help=True,
)


@quarantine.command("list")
def list_(state_dir: StateDirectory = None, as_json: Json = False) -> None:
    """List the models, with their crashes."""
    from dataclasses import asdict

    file = _file(state_dir)
    if as_json:
        models = {digest: [asdict(crash) for crash in crashes] for digest, crashes in file.crashes().items()}
        print_json(models)
    else:
        _show(file)


@quarantine.command()
def clear(
    digests: Annotated[
        list[str] | None,
        typer.Argument(metavar="DIGEST...", help="The first hex digits of digests. Default: all models."),
    ] = None,
    state_dir: StateDirectory = None,
) -> None:
    """Allow models again. Running services notice it."""
    with as_command_errors(ValueError, exit_code=FAILED):
        count = _file(state_dir).clear(digests or ())
    typer.echo(f"cleared {counted(count, 'model')}")


def _file(state_dir: Path | None) -> "QuarantineFile":
    state_directory = service_settings(state_dir=state_dir).state_dir
    from nnhal_service.quarantine import QuarantineFile

    return QuarantineFile(state_directory)


def _show(file: "QuarantineFile") -> None:
    import time

    console, models = make_console(), file.crashes()
    print_text(console, f"{counted(len(models), 'model')} in quarantine")
    if not models:
        return
    table = make_table("model", "crashes", "last", "backends", "how", "consequence", right=("crashes", "last"))
    for digest, crashes in models.items():
        verdict = file.verdict(bytes.fromhex(digest))
        excluded = f"not on {', '.join(verdict.excluded)}" if verdict.excluded else "none yet"
        table.add_row(
            digest[:DIGITS],
            str(len(crashes)),
            time.strftime("%Y-%m-%d %H:%M", time.localtime(crashes[-1].at)),
            ", ".join(dict.fromkeys(crash.backend or "unknown" for crash in crashes)),
            crashes[-1].how,
            "refused" if verdict.refusal else excluded,
        )
    print_table(console, table)
