"""`nnhal info` as JSON and as tables."""

import json

from nnhal.types import HAL_HASH, OperandType
from tests.tools.cli.command import invoke


def test_json_output(target: str) -> None:
    result = invoke("info", "--target", target, "--json")
    assert result.exit_code == 0 and result.stderr == ""
    facts = json.loads(result.stdout)
    assert facts["interface"] == {"version": 4, "hash": HAL_HASH}
    assert facts["type"] == "CPU" and facts["extensions"] == ["org.nnhal.litert"] and "CpuRef" in facts["version"]
    backends = [(b["id"], b["state"]) for b in facts["backends"]]
    assert backends == [("CpuAcc", "READY"), ("CpuRef", "READY")]
    assert len(facts["capabilities"]["operand_types"]) == len(OperandType) - 1
    assert facts["cache"].keys() == {"hits", "misses", "saves", "evictions", "set_aside"}


def test_table_output(target: str) -> None:
    shown = invoke("info", "--target", target).stdout
    for word in (target, HAL_HASH, "CPU", "FLOAT32, TENSOR_FLOAT32", "WHILE", "CpuRef", "READY", "hits"):
        assert word in shown


def test_operand_types_with_the_same_performance_share_a_row() -> None:
    from nnhal_tools.cli.info import _group_rows

    slow, fast = {"exec_time": 2.0, "power_usage": 1.0}, {"exec_time": 0.5, "power_usage": 1.0}
    others = ("relaxed_float32_to_float16_scalar", "relaxed_float32_to_float16_tensor", "if", "while")
    rows = _group_rows({"operand_types": {"A": slow, "B": fast, "C": slow}, **dict.fromkeys(others, slow)})
    assert rows[:2] == [("A, C", slow), ("B", fast)]
