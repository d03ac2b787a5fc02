"""Settings that `nnhal serve` has in the current folder, for commands on the files of services."""

from typing import TYPE_CHECKING

from nnhal.errors import require_linux
from nnhal_tools.cli.errors import as_command_errors

if TYPE_CHECKING:
    from nnhal_service.settings import Settings


def service_settings(**options: object) -> "Settings":
    """Return the settings of `nnhal serve` in the current folder. Options that are not None override them.

    Raises:
        CommandError: a setting is invalid.
        LinuxRequiredError: this system is not Linux, so there are no services.
    """
    require_linux("this command")
    from nnhal_service.settings_sources import default_file, load_settings

    given = {name: value for name, value in options.items() if value is not None}
    with as_command_errors(ValueError):
        return load_settings(default_file(), given).settings
