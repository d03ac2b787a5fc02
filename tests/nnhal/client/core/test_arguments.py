"""Checks of the arguments of public functions."""

from pathlib import Path

import pytest

from nnhal.client.core.arguments import check_connect, enum_value, import_model, nanoseconds
from nnhal.errors import HalError
from nnhal.types import ExecutionPreference, Priority


@pytest.mark.parametrize("value", ["high", "HIGH", 2, Priority.HIGH])
def test_enums_by_name_or_number(value: int | str) -> None:
    assert enum_value(Priority, value) == 2


def test_names_may_have_hyphens() -> None:
    assert enum_value(ExecutionPreference, "low-power") == ExecutionPreference.LOW_POWER


def test_unknown_numbers_are_left_to_the_service() -> None:
    assert enum_value(Priority, 7) == 7


def test_unknown_name_lists_the_valid_ones() -> None:
    with pytest.raises(HalError, match=r"INVALID_ARGUMENT: unknown Priority 'hihg'; expected one of LOW, MEDIUM, HIGH"):
        enum_value(Priority, "hihg")


def test_enum_of_a_wrong_type() -> None:
    with pytest.raises(TypeError, match=r"Priority is 1\.5 \(float\); expected one of LOW, MEDIUM, HIGH"):
        enum_value(Priority, 1.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "kind", "reason"),
    [
        ({"target": 50051}, TypeError, r"target is 50051 \(int\); expected an address such as 'localhost:50051'"),
        ({"target": ""}, HalError, "invalid address ''; expected HOST:PORT or unix:PATH"),
        ({"target": "http://localhost:1"}, HalError, "invalid address 'http://localhost:1'; expected HOST:PORT"),
        ({"device": 5}, TypeError, r"device is 5 \(int\); expected the name of a device"),
        ({"timeout": "1 s"}, TypeError, r"timeout is '1 s' \(str\); expected a number of seconds"),
        ({"client_name": None}, TypeError, r"client_name is None \(NoneType\); expected a text for the log"),
        ({"transport": "tcp"}, HalError, "transport is 'tcp'; expected one of 'auto', 'grpc'"),
    ],
)
def test_invalid_arguments_of_connect(arguments: dict[str, object], kind: type[Exception], reason: str) -> None:
    defaults: dict[str, object] = {"target": None, "device": "", "timeout": 1, "transport": "auto", "client_name": ""}
    check_connect(**defaults)
    with pytest.raises(kind, match=reason):
        check_connect(**defaults | arguments)


def test_sources_of_models(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"model is 5 \(int\); expected a nnhal\.Model, or the path or the bytes of a"):
        import_model(5)
    with pytest.raises(FileNotFoundError):
        import_model(tmp_path / "model.tflite")


def test_long_values_are_not_shown() -> None:
    with pytest.raises(TypeError, match=r"^model is a list; expected"):
        import_model([0] * 1000)


def test_durations() -> None:
    assert nanoseconds(0.5) == 500_000_000
    with pytest.raises(TypeError, match=r"deadline is '5' \(str\); expected a number of seconds"):
        nanoseconds("5")  # type: ignore[arg-type]
    with pytest.raises(HalError, match="duration is inf; expected a number of seconds"):
        nanoseconds(float("inf"), "duration")
