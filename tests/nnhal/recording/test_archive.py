"""Archives: order, identities, versions, and what is left of damaged ones."""

from pathlib import Path
from random import Random

import numpy as np
import pytest

from nnhal.recording.archive import Archive
from nnhal.recording.members import RecordingError
from tests.nnhal.recording.archives import DIGEST, doubling_model, header, packed_model, packed_record, write_archive

MODEL = doubling_model()


def x(value: float) -> np.ndarray:
    return np.array([value, 2], np.float32)


def pairs(count: int) -> list[tuple[list[np.ndarray], list[np.ndarray]]]:
    return [([x(i)], [2 * x(i)]) for i in range(count)]


def test_records_of_all_files_are_in_the_order_of_time(tmp_path: Path) -> None:
    for name, numbers in (("a", (1, 4)), ("b", (2, 3))):
        records = [packed_record(i, [x(n)], [x(n)], started=float(n)) for i, n in enumerate(numbers, 1)]
        (tmp_path / f"{name}.tar").write_bytes(header() + packed_model(MODEL) + b"".join(records))
    archive = Archive(tmp_path)
    assert [record.started for record in archive.records] == [1, 2, 3, 4] and archive.problems == []
    inputs, _ = archive.records[2].values()
    assert inputs[0] is not None and inputs[0][0] == 3
    assert archive.model(DIGEST).main == MODEL.main
    assert archive.records[0].identity == "anonymous" and archive.records[0].name == "a/1"


def test_every_prefix_of_a_file_has_its_whole_records(tmp_path: Path) -> None:
    path = write_archive(tmp_path / "a.tar", MODEL, pairs(3))
    data, ends = path.read_bytes(), []
    size = len(header() + packed_model(MODEL))
    for i, pair in enumerate(pairs(3), 1):
        size += len(packed_record(i, *pair))
        ends.append(size)
    for length in range(ends[0], len(data) + 1, 509):
        path.write_bytes(data[:length])
        archive = Archive(path)
        whole = sum(end <= length for end in ends)
        assert whole <= len(archive.records) <= whole + 1  # only padding may be missing
        assert all(record.values()[0][0] is not None for record in archive.records)


def test_flipped_bits_cost_only_their_member(tmp_path: Path) -> None:
    path = write_archive(tmp_path / "a.tar", MODEL, pairs(5))
    data, random = path.read_bytes(), Random(2)
    start = len(header() + packed_model(MODEL))
    for _ in range(150):
        damaged = bytearray(data)
        damaged[random.randrange(start, len(data))] ^= 1 << random.randrange(8)
        path.write_bytes(damaged)
        archive = Archive(path)
        assert len(archive.records) >= 4
        assert len(archive.records) == 5 or archive.problems or archive.records[-1].name.endswith("/4")
        for record in archive.records:
            inputs, outputs = record.values()
            assert inputs[0] is not None and outputs[0] is not None
            np.testing.assert_array_equal(outputs[0], 2 * inputs[0])


def test_lost_records_and_models_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(header() + packed_record(1, [x(1)], [x(1)]) + packed_record(4, [x(1)], [x(1)]))
    archive = Archive(path)
    assert [problem.split(": ")[1] for problem in archive.problems] == [
        "records/00000002.npz is lost",
        "records/00000003.npz is lost",
    ]
    with pytest.raises(RecordingError, match="the model abababababab is not in the archive"):
        archive.model(DIGEST)


def test_another_identity_is_an_error(tmp_path: Path) -> None:
    for name in ("alice", "bob"):
        (tmp_path / f"{name}.tar").write_bytes(header(f"token:{name}") + packed_record(1, [x(1)], [x(1)]))
    with pytest.raises(RecordingError, match="records of token:alice, token:bob; name one with --identity"):
        Archive(tmp_path)
    with pytest.raises(RecordingError, match=r"has records of token:alice; expected token:bob"):
        Archive(tmp_path / "alice.tar", "token:bob")
    assert [record.name for record in Archive(tmp_path, "token:bob").records] == ["bob/1"]


def test_newer_version_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(header(version=2))
    with pytest.raises(RecordingError, match=r"has version 2 of the format; this nnhal reads up to 1. Update nnhal"):
        Archive(tmp_path)


def test_other_files_are_reported(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="there is no"):
        Archive(tmp_path / "none")
    with pytest.raises(RecordingError, match="no archives"):
        Archive(tmp_path)
    (tmp_path / "a.tar").write_bytes(bytes(3000))
    assert "the start is damaged, or it is not a recording" in Archive(tmp_path).problems[0]


def test_records_without_values_have_none(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(header() + packed_record(1, [], [], has_values=False))
    with pytest.raises(RecordingError, match="a/1 has no values"):
        Archive(path).records[0].values()
