"""Commands of the operator that end or restart the service under test."""

import os
import subprocess
from dataclasses import dataclass

from nnhal_tools.conformance.check import CheckFailed, Skipped

RESTART, KILL, STOP = "--restart-cmd", "--kill-cmd", "--stop-cmd"
"""Options with commands."""

COMMAND_S = 120.0
"""Timeout of a command in seconds."""

PID_VARIABLE = "NNHAL_DEVICE_PID"
"""Environment variable that tells the command that kills a process which one serves a session of the check."""


@dataclass(frozen=True)
class ServiceControl:
    """Shell commands for the service under test; "" for those that there are not.

    Attributes:
        restart_command: restarts the service, and ends when it listens.
        kill_command: kills a process of the service, which comes back by itself.
        stop_command: asks a process of the service to stop; another one takes its place.
        recovery_s: time limit in seconds for the service to respond again.
    """

    restart_command: str = ""
    kill_command: str = ""
    stop_command: str = ""
    recovery_s: float = 10.0

    def require(self, option: str) -> None:
        """Raise Skipped if there is no command for an option."""
        if not self._command(option):
            raise Skipped("", f"needs {option}")

    def run(self, option: str, id_: str, pid: int = 0) -> None:
        """Run the command of an option.

        Args:
            option: RESTART, KILL or STOP.
            id_: the id that fails if the command does.
            pid: the process that serves a session of the check; 0 if it is unknown.
        """
        environment = os.environ | {PID_VARIABLE: str(pid or "")}
        try:
            subprocess.run(self._command(option), shell=True, check=True, timeout=COMMAND_S, env=environment)
        except subprocess.SubprocessError as error:
            raise CheckFailed(id_, option, "exit status 0", error) from None

    def _command(self, option: str) -> str:
        return {RESTART: self.restart_command, KILL: self.kill_command, STOP: self.stop_command}[option]


NO_CONTROL = ServiceControl()
