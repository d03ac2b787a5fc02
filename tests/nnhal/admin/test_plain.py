"""Messages of the administration as plain values."""

import json

from nnhal.admin.plain import to_plain
from nnhal.admin.v1 import admin_pb2


def test_every_field_is_present_and_integers_are_numbers() -> None:
    entries = [admin_pb2.CacheEntrySnapshot(token="ab", size=2**40)]
    plain = to_plain(admin_pb2.CacheSnapshot(entries=entries, hits=3, miss_reasons={"damaged": 2**33}))
    assert json.loads(json.dumps(plain)) == plain
    assert set(plain) == {field.name for field in admin_pb2.CacheSnapshot.DESCRIPTOR.fields}
    assert (plain["directory"], plain["hits"], plain["miss_reasons"]) == ("", 3, {"damaged": 2**33})
    assert plain["entries"][0]["size"] == 2**40 and plain["entries"][0]["hits"] == 0
    assert to_plain(admin_pb2.WorkerSnapshot())["load"]["durations"] == []
