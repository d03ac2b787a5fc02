"""Settings: the text forms of lists, limits and log levels."""

import pytest
from pydantic import ValidationError

from nnhal_service.settings import Settings


@pytest.mark.parametrize(
    ("text", "backends"),
    [
        ("CpuRef", ("CpuRef",)),
        ("CpuAcc, CpuRef", ("CpuAcc", "CpuRef")),
        ('["CpuAcc", "a,b"]', ("CpuAcc", "a,b")),
        ("", ("",)),
    ],
)
def test_list_has_commas_or_is_json(text: str, backends: tuple[str, ...]) -> None:
    assert Settings.model_validate({"backends": text}).backends == backends


def test_elements_of_lists_are_converted() -> None:
    assert Settings.model_validate({"data_users": "10,20"}).data_users == (10, 20)
    assert Settings.model_validate({"data_users": "[10]"}).data_users == (10,)


@pytest.mark.parametrize("limits", ["sessions=8,reads = 2", '{"sessions": 8, "reads": 2}', ["sessions=8", "reads=2"]])
def test_limits_are_pairs_or_json(limits: object) -> None:
    assert Settings.model_validate({"limits": limits}).limits == {"sessions": 8, "reads": 2}


def test_case_of_log_levels_is_ignored() -> None:
    assert Settings.model_validate({"log_level": "warning"}).log_level == "WARNING"


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"backends": "[CpuRef]"}, "invalid JSON"),
        ({"limits": "sessions"}, "invalid limit 'sessions'; expected NAME=VALUE"),
        ({"limits": "sessions=-1"}, "invalid limit"),
        ({"log_level": "loud"}, "'loud'"),
        ({"threads": 3}, "greater than or equal to 4"),
        ({"nothing": 1}, "not permitted"),
    ],
)
def test_invalid_values_are_rejected(values: dict[str, object], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        Settings.model_validate(values)
