"""The command line: what it says when it is misused, and real services, models and images behind it."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.table import Table
from typer.testing import CliRunner, Result

from nnhal.client import Outputs, PreparedModel
from nnhal.embedded import EmbeddedService
from nnhal.types import HAL_HASH, AnyArray, Model, Operand, OperandLifeTime, OperandType, Subgraph
from tools.cli import app, inputs, results
from tools.cli.console import make_console
from tools.cli.errors import CommandError
from tools.demo.train_digits import DEMO_FOLDER

PROGRAM = [sys.executable, "-P", "-m", "tools.cli"]
DIGITS = DEMO_FOLDER / "digits.tflite"
NOBODY = "127.0.0.1:1"
MODELS = Path(__file__).parents[3] / "shared" / "models"


def invoke(*arguments: object, **environment: str) -> Result:
    return CliRunner(env=environment).invoke(app, [str(argument) for argument in arguments])


def fails(result: Result, code: int, *words: str) -> None:
    """Checks that a command ended with one line on stderr that holds the words, and nothing else."""
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("nnhal: ") and result.stderr.count("\n") == 1, result.stderr
    for word in words:
        assert word in result.stderr


def rendered(table: Table) -> list[list[str]]:
    """The cells of each row of a table, the heading first."""
    console = make_console()
    with console.capture() as capture:
        console.print(table)
    rows = [re.split("[│┃]", line)[1:-1] for line in capture.get().splitlines()]
    return [[cell.strip() for cell in row] for row in rows if row]


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    """A service in a process of its own."""
    with closing(EmbeddedService()) as service:
        yield service.target


@pytest.fixture
def serves_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that listens after all fails the test; it would never end."""

    def announce(addresses: Sequence[str]) -> None:
        raise AssertionError(f"listens on {addresses}")

    monkeypatch.setattr("tools.cli.serve._announce", announce)


# ---- Without a service ------------------------------------------------------------------------------------


def test_help_names_every_command_and_loads_nothing_heavy() -> None:
    code = "import sys; from tools.cli import app; print(sorted({'numpy', 'grpc', 'rich', 'PIL'} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-P", "-c", code], text=True).strip() == "[]"
    shown = invoke().output
    for command in ("serve", "info", "run", "demo"):
        assert command in shown
        assert invoke(command, "--help").exit_code == 0


@pytest.mark.usefixtures("serves_nobody")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--listen", "0.0.0.0:0"], ["0.0.0.0:0", "--insecure"]),
        (["--listen", "[::]:0"], ["[::]:0", "--insecure"]),
        (["--listen", "127.0.0.1:0", "--listen", "192.0.2.1:0"], ["192.0.2.1:0", "--insecure"]),
        (["--listen", "localhost"], ["'localhost'", "HOST:PORT"]),
        (["--listen", "localhost:65536"], ["localhost:65536", "HOST:PORT"]),
        (["--listen", "unix:"], ["unix:", "HOST:PORT"]),
        (["--listen", "unix:/nowhere/at/all"], ["cannot listen on unix:/nowhere/at/all"]),
        (["--backends", "CpuRef,Abacus"], ["'Abacus'", "CpuRef"]),
        (["--backends", ""], ["no backend ''"]),
    ],
)
def test_serve_refuses_wrong_settings(options: list[str], words: list[str]) -> None:
    fails(invoke("serve", *options), 2, *words)


@pytest.mark.parametrize(
    ("name", "value"),
    [("NNHAL_INSECURE", "perhaps"), ("NNHAL_LISTEN", "localhost:0"), ("NNHAL_BACKENDS", '["Abacus"]')],
)
def test_serve_refuses_a_wrong_environment(name: str, value: str) -> None:
    word = {"NNHAL_LISTEN": '"listen"', "NNHAL_BACKENDS": "Abacus"}.get(name, name)
    fails(invoke("serve", **{name: value}), 2, word)


@pytest.mark.parametrize("options", [["--log-level", "loud"], ["extra"], ["--nothing"]])
def test_unknown_arguments_are_errors_of_use(options: list[str]) -> None:
    result = invoke("serve", *options)
    assert result.exit_code == 2 and options[-1] in result.stderr


@pytest.mark.parametrize("command", [["info"], ["run", DIGITS]])
def test_a_service_that_does_not_answer(command: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("info", "run"):
        monkeypatch.setattr(f"tools.cli.{module}.CONNECT_S", 0.2)
    fails(invoke(*command, "--target", NOBODY), 1, NOBODY, "did not answer")


def test_only_serve_loads_the_service() -> None:
    code = f"""
import sys
from tools.cli import app
from typer.testing import CliRunner
from tools.cli import info, run
info.CONNECT_S = run.CONNECT_S = 0.2
for arguments in (["info"], ["run", {str(DIGITS)!r}]):
    assert CliRunner().invoke(app, [*arguments, "--target", {NOBODY!r}]).exit_code == 1
assert "nnhal.client" in sys.modules
print(sorted({{"service", "driver"}} & set(sys.modules)))
"""
    assert subprocess.check_output([sys.executable, "-P", "-c", code], text=True).strip() == "[]"


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--image", "{}/none.png"], "none.png: No such file"),
        (["--image", "{}/text"], "holds no image"),
        (["--input", "{}/none.npy"], "none.npy as .npy: No such file"),
        (["--input", "{}/text"], "magic string"),
        (["--labels", "{}/none.txt"], "none.txt: No such file"),
        (["--labels", "{}/text"], "holds 2 labels; the model has 10 classes"),
        (["--image", "{}/text", "--input", "{}/text"], "not both"),
    ],
)
def test_run_refuses_wrong_files(options: list[str], word: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("first\nsecond\n")
    fails(invoke("run", DIGITS, "--target", NOBODY, *(o.format(tmp_path) for o in options)), 2, word)


def test_run_refuses_what_is_no_model(tmp_path: Path) -> None:
    fails(invoke("run", tmp_path / "none.tflite"), 2, "none.tflite: No such file")
    (tmp_path / "text.tflite").write_text("no model at all")
    fails(invoke("run", tmp_path / "text.tflite"), 2, "text.tflite", "TFL3")


# ---- Inputs -----------------------------------------------------------------------------------------------


def image_operand(type_: OperandType, *dimensions: int) -> Operand:
    return Operand(type_, dimensions, 0.5, 0, OperandLifeTime.SUBGRAPH_INPUT)


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        (OperandType.TENSOR_QUANT8_ASYMM, np.array([0, 100, 255], np.uint8)),
        (OperandType.TENSOR_QUANT8_ASYMM_SIGNED, np.array([-128, -28, 127], np.int8)),
        (OperandType.TENSOR_FLOAT32, np.array([0, 100 / 255, 1], np.float32)),
    ],
)
def test_pixels_become_elements(type_: OperandType, expected: AnyArray, tmp_path: Path) -> None:
    Image.new("RGB", (6, 5), (0, 100, 255)).save(tmp_path / "plain.png")
    array = inputs.read_image(tmp_path / "plain.png", [image_operand(type_, 1, 4, 2, 3)])
    assert array.shape == (1, 4, 2, 3) and array.dtype == expected.dtype
    np.testing.assert_array_equal(array, np.broadcast_to(expected, array.shape))


def test_an_image_keeps_its_orientation_and_is_resized_smoothly(tmp_path: Path) -> None:
    pixels = np.zeros((2, 4), np.uint8)
    pixels[0, 3] = 255
    Image.fromarray(pixels).save(tmp_path / "corner.png")
    array = inputs.read_image(tmp_path / "corner.png", [image_operand(OperandType.TENSOR_QUANT8_ASYMM, 1, 2, 4, 1)])
    np.testing.assert_array_equal(array[0, :, :, 0], pixels)
    wider = inputs.read_image(tmp_path / "corner.png", [image_operand(OperandType.TENSOR_QUANT8_ASYMM, 1, 2, 8, 1)])
    assert set(wider.ravel()) - {0, 255}


@pytest.mark.parametrize(
    "operands",
    [
        [],
        [image_operand(OperandType.TENSOR_FLOAT32, 1, 4, 4, 3)] * 2,
        [image_operand(OperandType.TENSOR_FLOAT32, 1, 640)],
        [image_operand(OperandType.TENSOR_FLOAT32, 1, 4, 4, 2)],
        [image_operand(OperandType.TENSOR_FLOAT32, 1, 0, 4, 3)],
        [image_operand(OperandType.TENSOR_INT32, 1, 4, 4, 3)],
    ],
)
def test_models_that_take_no_image(operands: list[Operand], tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "plain.png")
    with pytest.raises(CommandError, match="needs a model with one input"):
        inputs.read_image(tmp_path / "plain.png", operands)


def test_a_damaged_image(tmp_path: Path) -> None:
    Image.new("RGB", (64, 64), "red").save(tmp_path / "whole.png")
    (tmp_path / "half.png").write_bytes((tmp_path / "whole.png").read_bytes()[:80])
    with pytest.raises(CommandError, match=r"cannot read the image .*half\.png"):
        inputs.read_image(tmp_path / "half.png", [image_operand(OperandType.TENSOR_FLOAT32, 1, 4, 4, 3)])


def test_random_inputs_fill_the_range_and_repeat() -> None:
    types = [OperandType.TENSOR_FLOAT32, OperandType.TENSOR_QUANT8_ASYMM, OperandType.TENSOR_QUANT8_ASYMM_SIGNED]
    operands = [image_operand(type_, 0, 5000) for type_ in (*types, OperandType.TENSOR_INT32, OperandType.TENSOR_BOOL8)]
    arrays, again = inputs.random_inputs(operands), inputs.random_inputs(operands)
    for first, second in zip(arrays, again, strict=True):
        np.testing.assert_array_equal(first, second)
    assert [array.shape for array in arrays] == [(1, 5000)] * 5
    assert [array.dtype for array in arrays] == [np.float32, np.uint8, np.int8, np.int32, np.bool_]
    assert [(int(a.min()), int(a.max())) for a in arrays[1:]] == [(0, 255), (-128, 127), (0, 1), (0, 1)]
    assert 0 <= arrays[0].min() < arrays[0].max() <= 1


# ---- Outputs ----------------------------------------------------------------------------------------------


def test_the_best_classes_are_dequantised_and_named() -> None:
    operand = Operand(OperandType.TENSOR_QUANT8_ASYMM_SIGNED, (1, 6), 1 / 256, -128)
    output = np.array([[-128, 0, 64, -64, -127, 0]], np.int8)
    rows = rendered(results.best_classes(output, operand, ["a", "b", "[bold]c[/bold]", "d", "e", "f"]))
    assert rows == [
        ["class", "label", "probability"],
        ["2", "[bold]c[/bold]", "0.7500"],
        ["1", "b", "0.5000"],
        ["5", "f", "0.5000"],
        ["3", "d", "0.2500"],
        ["4", "e", "0.0039"],
    ]


@pytest.mark.parametrize("values", [[1.5, 0.0], [0.5, -2.0]])
def test_values_that_are_no_probabilities_are_called_scores(values: list[float]) -> None:
    rows = rendered(results.best_classes(np.array([values]), Operand(OperandType.TENSOR_FLOAT32, (1, 2)), []))
    assert rows == [["class", "score"], ["0", f"{values[0]:g}"], ["1", f"{values[1]:g}"]]


def test_of_equals_the_first_class_comes_first() -> None:
    rows = rendered(
        results.best_classes(np.arange(100)[np.newaxis] % 2, Operand(OperandType.TENSOR_INT32, (1, 100)), [])
    )
    assert [row[0] for row in rows[1:]] == ["1", "3", "5", "7", "9"]


@pytest.mark.parametrize(
    ("dimensions", "classes"),
    [([(1, 7)], 7), ([(1, 7), (3,)], 7), ([(1, 1)], 0), ([(2, 7)], 0), ([(1, 0)], 0), ([], 0)],
)
def test_only_a_class_vector_counts_as_classes(dimensions: list[tuple[int, ...]], classes: int) -> None:
    operands = tuple(Operand(OperandType.TENSOR_FLOAT32, d) for d in dimensions)
    assert results.count_classes(Model(Subgraph(operands, (), (), tuple(range(len(operands)))))) == classes


def test_a_summary_shows_real_values() -> None:
    operand = Operand(OperandType.TENSOR_QUANT8_ASYMM, (2, 2), 0.5, 10)
    rows = rendered(results.summary([np.array([[10, 12], [14, 8]], np.uint8)], [operand], ["named"]))
    assert rows == [
        ["output", "shape", "dtype", "min", "max", "mean"],
        ["named", "[2, 2]", "uint8", "-1", "2", "0.5"],
    ]


def test_outputs_are_saved_under_names_that_a_file_can_have(tmp_path: Path) -> None:
    names = results.output_names(["a/b:0", "a.b", "", "a:b:0"], 5)
    outputs = [np.full(2, i) for i in range(5)]
    paths = results.save(tmp_path / "new" / "folder", outputs, names)
    assert [path.name for path in paths] == ["a_b_0_0.npy", "a.b.npy", "output_2.npy", "a_b_0_3.npy", "output_4.npy"]
    for path, output in zip(paths, outputs, strict=True):
        np.testing.assert_array_equal(np.load(path), output)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CommandError, match="cannot write to"):
        results.save(tmp_path / "file", [np.zeros(1)], ["x"])


# ---- With a service ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_says_where_it_listens_and_ends_at_a_signal(number: int, tmp_path: Path) -> None:
    addresses = ["--listen", "127.0.0.1:0", "--listen", f"unix:{tmp_path}/s"]
    environment = {**os.environ, "NNHAL_DEVICES": '["other"]', "NNHAL_LISTEN": '["0.0.0.0:0"]'}
    command = [*PROGRAM, "serve", *addresses, "--log-level", "error"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(2)]
            first = re.fullmatch(r"listening on (127\.0\.0\.1:[1-9]\d*)\n", lines[0])
            assert first and lines[1] == f"listening on unix:{tmp_path}/s\n"
            assert invoke("info", "--target", first[1]).exit_code == 0
            fails(invoke("run", DIGITS, "--target", first[1], "--device", "nnhal"), 1, "'nnhal'", "other")
            process.send_signal(number)
            out, err = process.communicate(timeout=30)
            # the engine's library says this itself, and offers nothing to silence it
            assert (out, err.replace("INFO: Created TensorFlow Lite XNNPACK delegate for CPU.\n", "")) == ("", "")
        finally:
            process.kill()
    assert process.returncode == 0


def test_info_as_json(target: str) -> None:
    result = invoke("info", "--target", target, "--json")
    assert result.exit_code == 0 and result.stderr == ""
    facts = json.loads(result.stdout)
    assert facts["interface"] == {"version": 4, "hash": HAL_HASH}
    assert facts["type"] == "CPU" and facts["extensions"] == [] and "CpuRef" in facts["version"]
    assert [(b["id"], b["state"]) for b in facts["backends"]] == [("CpuAcc", "READY"), ("CpuRef", "READY")]
    assert len(facts["capabilities"]["operand_types"]) == len(OperandType) - 1
    assert facts["cache"].keys() == {"hits", "misses", "saves", "evictions", "set_aside"}


def test_info_as_tables(target: str) -> None:
    shown = invoke("info", "--target", target).stdout
    for word in (target, HAL_HASH, "CPU", "FLOAT32, TENSOR_FLOAT32", "WHILE", "CpuRef", "READY", "hits"):
        assert word in shown


def test_operand_types_with_the_same_performance_share_a_row() -> None:
    from tools.cli.info import _folded

    slow, fast = {"exec_time": 2.0, "power_usage": 1.0}, {"exec_time": 0.5, "power_usage": 1.0}
    others = ("relaxed_float32_to_float16_scalar", "relaxed_float32_to_float16_tensor", "if", "while")
    rows = _folded({"operand_types": {"A": slow, "B": fast, "C": slow}, **dict.fromkeys(others, slow)})
    assert rows[:2] == [("A, C", slow), ("B", fast)]


def test_run_shows_the_best_classes_of_an_image(target: str, tmp_path: Path) -> None:
    with np.load(DEMO_FOLDER / "digits.npz") as digits:
        pixels, label = digits["images"][0], int(digits["labels"][0])
    Image.fromarray((pixels * 15.9).astype(np.uint8)).save(tmp_path / "digit.png")
    (tmp_path / "labels.txt").write_text("".join(f"the digit {i}\n" for i in range(10)))
    options = ["--image", tmp_path / "digit.png", "--labels", tmp_path / "labels.txt", "--repeat", 3]
    result = invoke("run", DIGITS, "--target", target, *options)
    assert result.exit_code == 0, result.output
    rows = [row.split() for row in result.stdout.splitlines() if "the digit" in row]
    assert len(rows) == 5 and rows[0][1] == str(label) and float(rows[0][-2]) > 0.9
    assert re.search(r"prepare [\d.]+ ms, execute [\d.]+ ms \(median of 3\)", result.stdout)
    assert result.stderr == "" and "\x1b" not in result.stdout


def test_run_takes_and_saves_arrays(target: str, tmp_path: Path) -> None:
    with np.load(DEMO_FOLDER / "digits.npz") as digits:
        np.save(tmp_path / "in.npy", (digits["images"][:1, :, :, np.newaxis] / 16).astype(np.float32))
        label = digits["labels"][0]
    result = invoke("run", DIGITS, "--target", target, "--input", tmp_path / "in.npy", "--output", tmp_path / "out")
    assert result.exit_code == 0, result.output
    saved = np.load(tmp_path / "out" / "probabilities.npy")
    assert saved.shape == (1, 10) and saved.dtype == np.float32 and saved.argmax() == label
    assert "random" not in result.stdout


def test_run_says_that_inputs_are_random(target: str) -> None:
    assert "inputs: random, seed 0" in invoke("run", DIGITS, "--target", target).stdout


def test_run_reports_what_the_device_says(target: str, tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", np.zeros((1, 9, 8, 1), np.float32))
    result = invoke("run", DIGITS, "--target", target, "--input", tmp_path / "in.npy")
    fails(result, 1, "INVALID_ARGUMENT", "[1, 9, 8, 1]")
    fails(invoke("run", DIGITS, "--target", target, "--deadline", 0), 1, "MISSED_DEADLINE_PERSISTENT", "preparation")


def test_run_gives_each_execution_the_deadline(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    execute, deadlines = PreparedModel.execute, []

    def recorded(self: PreparedModel, arrays: list[AnyArray], *, deadline: float | None) -> Outputs:
        deadlines.append(deadline)
        return execute(self, arrays, deadline=deadline)

    monkeypatch.setattr(PreparedModel, "execute", recorded)
    assert invoke("run", DIGITS, "--target", target, "--deadline", 90, "--repeat", 2).exit_code == 0
    assert deadlines == [90, 90]


@pytest.mark.skipif(not MODELS.is_dir(), reason="the folder ../shared/models is absent")
def test_run_knows_a_cat(target: str) -> None:
    options = ["--image", MODELS / "cat.bmp", "--labels", MODELS / "imagenet_labels.txt", "--target", target]
    result = invoke("run", MODELS / "mobilenet_v2_1.0_224_quant.tflite", *options)
    assert result.exit_code == 0, result.output
    best = next(line for line in result.stdout.splitlines() if line.startswith("│"))
    assert "Egyptian cat" in best


def test_a_service_that_cannot_start_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNHAL_BACKENDS", '["Abacus"]')
    fails(invoke("demo"), 1, "did not start", "Abacus")


@pytest.fixture(scope="module")
def demonstrated() -> subprocess.CompletedProcess[str]:
    """The demo, run as a user runs it, its output not a terminal."""
    return subprocess.run([*PROGRAM, "demo"], capture_output=True, text=True, timeout=120, check=False)


def test_the_demo_measures_its_accuracy(demonstrated: subprocess.CompletedProcess[str]) -> None:
    assert demonstrated.returncode == 0, demonstrated.stderr
    line = re.search(r"accuracy ([\d.]+)% \((\d+) of (\d+) held-back digits\)", demonstrated.stdout)
    assert line and float(line[1]) > 95 and int(line[2]) / int(line[3]) > 0.95
    assert re.search(r"service start [\d.]+ s, prepare [\d.]+ ms, execute [\d.]+ ms \(median\)", demonstrated.stdout)
    assert demonstrated.stderr == "" and "\x1b" not in demonstrated.stdout


def test_the_demo_draws_digits_with_answers(demonstrated: subprocess.CompletedProcess[str]) -> None:
    lines = demonstrated.stdout.splitlines()
    assert lines[0].startswith("A service")
    assert all(len(line) < 80 for line in lines if not line.startswith("A service"))
    answers = next(re.findall(r"answer (\d)", line) for line in lines if "answer" in line)
    labels = next(re.findall(r"label (\d)", line) for line in lines if "label" in line)
    assert len(answers) == len(labels) == 8
    differ = sum(a != b for a, b in zip(answers, labels, strict=True))
    assert demonstrated.stdout.count("WRONG") == differ == 1
    assert sum("█" in line for line in lines) == 8


def test_the_demos_service_is_gone(demonstrated: subprocess.CompletedProcess[str]) -> None:
    said = re.search(r"process (\d+) and listened on unix:(\S+)\.", demonstrated.stdout)
    assert said
    with pytest.raises(ProcessLookupError):
        os.kill(int(said[1]), 0)
    assert not Path(said[2]).parent.exists()


def test_a_demo_that_is_not_accurate_enough_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.demo.train_digits.LEAST_ACCURACY", 0.999)
    result = invoke("demo")
    assert result.exit_code == 1 and "accuracy 9" in result.stdout


# ---- explain ----------------------------------------------------------------------------------------------


def test_explain_says_what_each_operator_becomes(target: str) -> None:
    result = invoke("explain", DIGITS, "--target", target, "--json")
    assert result.exit_code == 0, result.output
    explained = json.loads(result.stdout)
    rows = explained["operations"]
    assert [row["type"] for row in rows][:3] == ["CONV_2D", "DEPTHWISE_CONV_2D", "CONV_2D"]
    assert rows[0]["origin"] == "operator 0 (CONV_2D)"
    assert rows[0]["inputs"][0] == "TENSOR_FLOAT32 [1, 8, 8, 1]"
    assert {row["backend"] for row in rows} == {"CpuAcc"}
    assert [partition["operations"] for partition in explained["partitions"]] == [list(range(len(rows)))]
    shown = invoke("explain", DIGITS, "--target", target, COLUMNS="200").stdout
    assert "operator 6 (SOFTMAX)" in shown and "CpuAcc" in shown


def test_explain_says_what_takes_how_long(target: str, tmp_path: Path) -> None:
    page = tmp_path / "graph.html"
    result = invoke("explain", DIGITS, "--target", target, "--run", "--json", "--html", page)
    assert result.exit_code == 0, result.output
    (partition,) = json.loads(result.stdout)["partitions"]
    assert partition["time_us"] > 0 and partition["share"] == 1
    assert "(100.0%) with its whole partition" in page.read_text()
    assert "(100.0%)" in invoke("explain", DIGITS, "--target", target, "--run", COLUMNS="250").stdout


def test_a_trace_is_written(target: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    result = invoke("run", DIGITS, "--target", target, "--repeat", 2, "--trace", path)
    assert result.exit_code == 0 and "trace of 2 spans" in result.stdout
    events = json.loads(path.read_text())["traceEvents"]
    assert [(one["pid"], one["cat"]) for one in events if one["ph"] == "X"] == [(0, "partition"), (1, "partition")]
    fails_to_write = invoke("run", DIGITS, "--target", target, "--trace", tmp_path / "no" / "trace.json")
    assert fails_to_write.exit_code == 2 and "cannot write" in fails_to_write.stderr


def test_explain_starts_a_service_of_its_own_and_names_a_bad_file(tmp_path: Path) -> None:
    assert invoke("explain", DIGITS).exit_code == 0
    bad = tmp_path / "bad.tflite"
    bad.write_bytes(b"TFL3")
    fails(invoke("explain", bad), 2, "bad.tflite")


def test_explain_draws_the_graph(target: str, tmp_path: Path) -> None:
    page = tmp_path / "graph.html"
    assert invoke("explain", DIGITS, "--target", target, "--html", page).exit_code == 0
    assert "6 SOFTMAX" in page.read_text()
    fails(invoke("explain", DIGITS, "--target", target, "--html", tmp_path / "no" / "graph.html"), 2, "cannot write")
