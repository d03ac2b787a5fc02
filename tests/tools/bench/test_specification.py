"""Load levels of options, and tasks on their way to a client process."""

import pytest

from nnhal_tools.bench.specification import ClientTask, Level, Subject, parse_levels


@pytest.mark.parametrize(
    ("concurrency", "rates", "levels"),
    [
        ("1", "", [Level(1)]),
        ("1:16", "", [Level(1), Level(2), Level(4), Level(8), Level(16)]),
        ("3:10", "", [Level(3), Level(6), Level(10)]),
        ("8,2,2", "", [Level(2), Level(8)]),
        ("2,4", "50,100", [Level(4, 50), Level(4, 100)]),
    ],
)
def test_levels(concurrency: str, rates: str, levels: list[Level]) -> None:
    assert parse_levels(concurrency, rates) == levels


@pytest.mark.parametrize(
    ("concurrency", "rates", "word"),
    [
        ("0", "", "--concurrency"),
        ("4:2", "", "larger"),
        ("", "", "--concurrency"),
        ("1", "x", "--rate"),
        ("1:2:3", "", "1:2:3"),
    ],
)
def test_invalid_levels(concurrency: str, rates: str, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        parse_levels(concurrency, rates)


def test_texts() -> None:
    assert [Level(1).text, Level(2).text, Level(2, 50).text] == ["1 client", "2 clients", "50/s from 2 clients"]


def test_task_survives_json() -> None:
    task = ClientTask("m.tflite", "i.npz", Subject("grpc", "unix:/s", "label"), "dev", {"x": [1, None]}, fallback=True)
    assert ClientTask.from_json(task.to_json()) == task
