"""`nnhal fleet`, as far as it needs no cluster."""

from nnhal_tools.cli.errors import MISUSED
from nnhal_tools.cli.fleet.commands import scaling_text
from tests.tools.cli.command import assert_fails, invoke

SCALING = {"hosts": 1, "min_hosts": 1, "max_hosts": 3, "reason": "", "refusal": ""}


def test_limits_that_contradict_each_other_are_refused() -> None:
    result = invoke("fleet", "up", "--min-hosts", 3, "--max-hosts", 2)
    assert_fails(result, MISUSED, "--max-hosts is 2; expected at least 3")


def test_status_of_a_fleet_that_asks_for_hosts() -> None:
    assert scaling_text(SCALING) == "the fleet wants 1 host, of 1 to 3"
    full = {**SCALING, "hosts": 3, "reason": "3 instead of 2 hosts: executions wait 1.20 s", "refusal": "all are busy"}
    assert scaling_text(full) == (
        "the fleet wants 3 hosts, of 1 to 3. 3 instead of 2 hosts: executions wait 1.20 s. "
        "new clients are refused: all are busy"
    )
