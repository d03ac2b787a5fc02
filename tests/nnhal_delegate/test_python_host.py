"""The delegate in LiteRT's interpreter in Python: results, partitions, shapes, options and errors."""

import gc
import json
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnhal
from tests.concurrency import wait_until
from tests.end_to_end.support.service_process import Service, start_service, stop_service
from tests.nnhal.litert import models
from tests.nnhal.tflite.build import Op, Tensor, build, ints, options
from tests.nnhal_delegate.python_host import Host, load, require_close, require_equal
from tests.nnhal_delegate.random_graphs import random_graph
from tests.service.supervisor.hostile_service import start_hostile

DEMO = Path(__file__).parents[2] / "tools" / "nnhal_tools" / "demo" / "digits.tflite"
PLUGINS = Path(__file__).parents[1] / "end_to_end" / "clients" / "plugins"
LACKING = "ABS ADD CONCATENATION MAX_POOL_2D PAD RESHAPE TANH"
GRAPHS = 100

Load = Callable[..., Any]


@pytest.fixture
def delegate(delegate_path: Path, delegate_service: Service) -> Any:
    return load(delegate_path, delegate_service.target)


@pytest.fixture(scope="module")
def lacking_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Yield a service whose device lacks operations."""
    settings = {"NNHAL_DYNAMIC_BACKENDS_PATH": str(PLUGINS), "PICKY_REFUSED": LACKING}
    running = start_service(tmp_path_factory.mktemp("lacking"), "--backends", "Picky", **settings)
    yield running
    stop_service(running)


@pytest.fixture
def dying_service(tmp_path: Path) -> Iterator[Service]:
    """Yield a service whose device lacks operations, and which a test may kill."""
    settings = {"NNHAL_DYNAMIC_BACKENDS_PATH": str(PLUGINS), "PICKY_REFUSED": LACKING}
    running = start_service(tmp_path, "--backends", "Picky", **settings)
    yield running
    running.process.kill()
    running.process.wait()


@pytest.fixture
def mortal_service(tmp_path: Path) -> Iterator[Service]:
    """Yield a service that a test may stop."""
    running = start_service(tmp_path, "--backends", "CpuAcc,CpuRef")
    yield running
    stop_service(running)


# ---- Results --------------------------------------------------------------------------------------------


def test_a_model_runs_in_one_kernel(delegate: Any) -> None:
    host, expected = Host(DEMO, delegate), Host(DEMO)
    assert host.kernels == 1
    for seed in range(3):
        inputs = host.samples(seed)
        require_equal(host.run(inputs), expected.run(inputs))


@pytest.mark.slow
def test_random_graphs_run_in_one_kernel(delegate: Any) -> None:
    for seed in range(GRAPHS):
        model = random_graph(seed)
        host, expected = Host(model, delegate), Host(model)
        inputs = host.samples(seed)
        assert host.kernels == 1
        require_equal(host.run(inputs), expected.run(inputs))


@pytest.mark.slow
def test_a_device_that_lacks_operations_runs_the_others(delegate_path: Path, lacking_service: Service) -> None:
    delegate = load(delegate_path, lacking_service.target)
    kernels = 0
    for seed in range(GRAPHS):
        model = random_graph(seed)
        host, expected = Host(model, delegate), Host(model)
        inputs = host.samples(seed)
        require_close(host.run(inputs), expected.run(inputs))
        kernels += host.kernels
    assert kernels > GRAPHS


@pytest.mark.parametrize("name", ["delegate_service", "lacking_service"])
def test_an_interpreter_is_freed_at_once(delegate_path: Path, name: str, request: pytest.FixtureRequest) -> None:
    """Also after partitions that the device has refused. Otherwise, its bursts stay open until some collection."""
    delegate = load(delegate_path, request.getfixturevalue(name).target)
    gc.collect()
    gc.disable()
    try:
        for seed in range(4):
            host = Host(random_graph(seed), delegate)
            host.run(host.samples())
            freed = weakref.ref(host.interpreter)
            del host
            assert freed() is None
    finally:
        gc.enable()


def test_the_log_has_the_reasons(delegate_path: Path, lacking_service: Service, delegate_log: list[str]) -> None:
    tensors = [Tensor((1, 4)) for _ in range(3)]
    model = build(Op("ABS", tensors[:1], tensors[1:2]), Op("NEG", tensors[1:2], tensors[2:]))
    Host(model, load(delegate_path, lacking_service.target, log="info"))
    assert delegate_log == [
        "the device runs 1 of 2 nodes, in 1 kernel",
        "LiteRT runs node 0 (ABS): Picky: it does not like this",
    ]


def test_two_delegates_share_a_process(
    delegate_path: Path, delegate_service: Service, lacking_service: Service
) -> None:
    model = random_graph(1)
    hosts = [Host(model, load(delegate_path, each.target)) for each in (delegate_service, lacking_service)]
    inputs = hosts[0].samples()
    results = [host.run(inputs) for host in (*hosts, Host(model))]
    require_equal(results[0], results[2])
    require_close(results[1], results[2])


def test_threads_have_an_interpreter_each(delegate_path: Path, delegate_service: Service) -> None:
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            host, expected = Host(DEMO, load(delegate_path, delegate_service.target)), Host(DEMO)
            for number in range(20):
                inputs = host.samples(100 * seed + number)
                require_equal(host.run(inputs), expected.run(inputs))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_nodes_with_a_state_stay_in_litert(delegate: Any) -> None:
    state = Tensor((1, 6), more={"isVariable": True})
    source, result = Tensor((1, 2)), Tensor((1, 3))
    weights, time = Tensor((3, 2), data=np.ones((3, 2))), Tensor((3, 2), data=np.ones((3, 2)))
    svdf = Op("SVDF", [source, weights, time, None, state], [result], options("SVDF", rank=1))
    host, expected = (Host(build(svdf, Op("ABS", [result], [Tensor((1, 3))])), each) for each in (delegate, None))
    assert host.kernels == 1
    for _ in range(3):
        require_equal(host.run([np.ones((1, 2), np.float32)]), expected.run([np.ones((1, 2), np.float32)]))


def test_nodes_with_strings_stay_in_litert(delegate: Any) -> None:
    host, expected = Host(models.vocabulary(), delegate), Host(models.vocabulary())
    assert host.kernels == 1
    for words in (["bb", "other"], ["ccc", "a"]):
        require_equal(host.run([np.array(words)]), expected.run([np.array(words)]))


@pytest.mark.parametrize("type_", ["INT4", "UINT4", "FLOAT8_E5M2"])
def test_types_that_a_device_lacks_stay_in_litert(delegate: Any, type_: str) -> None:
    host, expected = Host(models.few_bits(type_), delegate), Host(models.few_bits(type_))
    inputs = [np.arange(6, dtype=expected.interpreter.get_input_details()[0]["dtype"]).reshape(2, 3)]
    assert host.kernels == 0
    require_equal(host.run(inputs), expected.run(inputs))


# ---- Shapes ---------------------------------------------------------------------------------------------


def _convolution() -> bytes:
    image, result = Tensor((1, 4, 4, 3)), Tensor((1, 4, 4, 2))
    weights, bias = Tensor((2, 3, 3, 3), data=np.ones((2, 3, 3, 3))), Tensor((2,), data=np.ones(2))
    return build(Op("CONV_2D", [image, weights, bias], [result], options("Conv2D", strideW=1, strideH=1)))


def test_inputs_can_be_resized(delegate: Any) -> None:
    host, expected = Host(_convolution(), delegate), Host(_convolution())
    for shape in ((2, 4, 4, 3), (1, 7, 5, 3), (1, 4, 4, 3)):
        for each in (host, expected):
            each.resize({0: shape})
        inputs = host.samples()
        require_equal(host.run(inputs), expected.run(inputs))


def test_outputs_may_have_shapes_that_depend_on_values(delegate: Any) -> None:
    source, shape = Tensor((2, 6)), Tensor((2,), "INT32")
    reshaped, result = (Tensor((1, 1), more={"shapeSignature": [-1, -1]}) for _ in range(2))
    model = build(Op("RESHAPE", [source, shape], [reshaped]), Op("ABS", [reshaped], [result]))
    host, expected = Host(model, delegate), Host(model)
    values = host.samples()[0]
    for numbers in ((3, 4), (12, 1), (2, 6)):
        inputs = [values, np.array(numbers, np.int32)]
        require_equal(host.run(inputs), expected.run(inputs))


def test_scalars_keep_their_rank(delegate: Any) -> None:
    source, result = Tensor((2, 3)), Tensor(())
    model = build(Op("SUM", [source, ints(0, 1)], [result], options("Reducer", keepDims=False)))
    host, expected = Host(model, delegate), Host(model)
    inputs = host.samples()
    assert host.run(inputs)[0].shape == ()
    require_equal(host.run(inputs), expected.run(inputs))


def test_integers_of_64_bits_must_fit_into_32(delegate: Any) -> None:
    model = build(Op("ADD", [Tensor((2,), "INT64"), Tensor((2,), "INT64")], [Tensor((2,), "INT64")], options("Add")))
    host, expected = Host(model, delegate), Host(model)
    inputs = host.samples()
    require_equal(host.run(inputs), expected.run(inputs))


# ---- Cache ----------------------------------------------------------------------------------------------


def test_a_second_start_compiles_nothing(delegate_path: Path, mortal_service: Service) -> None:
    for _ in range(2):
        Host(_convolution(), load(delegate_path, mortal_service.target)).interpreter.invoke()
    lines = [line for line in mortal_service.log.read_text().splitlines() if " prepared " in line]
    assert [line.partition("cache=")[2].split()[0] for line in lines] == ["saved", "hit"]


# ---- A device that ends ---------------------------------------------------------------------------------


def test_an_execution_fails_if_the_device_is_gone(delegate_path: Path, mortal_service: Service) -> None:
    host = Host(DEMO, load(delegate_path, mortal_service.target, timeout="1"))
    inputs = host.samples()
    host.run(inputs)
    stop_service(mortal_service)
    with pytest.raises(RuntimeError, match="nnhal delegate: DEVICE_UNAVAILABLE"):
        host.run(inputs)


def test_this_machine_replaces_a_device_that_is_gone(delegate_path: Path, mortal_service: Service) -> None:
    host = Host(DEMO, load(delegate_path, mortal_service.target, timeout="1", fallback="litert"))
    inputs = host.samples()
    expected = host.run(inputs)
    stop_service(mortal_service)
    for _ in range(2):
        require_equal(host.run(inputs), expected)


@pytest.mark.parametrize("fallback", ["error", "litert"])
def test_a_device_is_killed_in_the_middle_of_an_execution(delegate_path: Path, tmp_path: Path, fallback: str) -> None:
    behavior = tmp_path / "behavior"
    behavior.write_text("")
    service = start_hostile(tmp_path, behavior)
    value = Tensor((2,))
    host = Host(
        build(Op("RELU", [value], [Tensor((2,))])), load(delegate_path, service.target, timeout="1", fallback=fallback)
    )
    inputs, results = [np.array([1, 2], np.float32)], list[Any]()  # the backend copies
    expected = host.run(inputs)

    def run() -> None:
        try:
            results.append(host.run(inputs))
        except RuntimeError as error:
            results.append(error)

    behavior.write_text("execute wait")
    thread = threading.Thread(target=run)
    thread.start()
    assert wait_until(behavior.with_suffix(".waiting").exists, 60)
    service.process.kill()
    service.process.wait()
    thread.join(60)
    if fallback == "litert":
        require_equal(results[0], expected)
    else:
        assert "nnhal delegate: DE" in str(results[0])


@pytest.mark.nightly
@pytest.mark.parametrize("fallback", ["error", "litert"])
def test_a_device_that_lacks_operations_dies_under_four_threads(
    delegate_path: Path, dying_service: Service, fallback: str
) -> None:
    delegate = load(delegate_path, dying_service.target, timeout="1", fallback=fallback)
    ran, is_dead, outcomes = threading.Semaphore(0), threading.Event(), dict[int, str]()

    def work(number: int) -> None:
        try:
            seeds = range(number, GRAPHS, 4 * 3)
            pairs = [(Host(random_graph(seed), delegate), Host(random_graph(seed))) for seed in seeds]
            rounds_after = 0
            while rounds_after < 2:
                rounds_after += is_dead.is_set()
                for host, expected in pairs:
                    inputs = host.samples(number)
                    require_close(host.run(inputs), expected.run(inputs))
                ran.release()
            outcomes[number] = "equal"
        except BaseException as error:
            outcomes[number] = str(error)
            ran.release()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(2 * len(threads)):
        assert ran.acquire(timeout=300)
    assert outcomes == {}  # no thread has failed while the device was there
    dying_service.process.kill()
    is_dead.set()
    for thread in threads:
        thread.join(300)
    if fallback == "litert":
        assert outcomes == dict.fromkeys(range(4), "equal")
    else:
        assert len(outcomes) == 4 and all("nnhal delegate: DE" in outcome for outcome in outcomes.values())


def test_litert_runs_all_nodes_without_a_device(delegate_path: Path, tmp_path: Path) -> None:
    target = f"unix:{tmp_path}/none.sock"
    host = Host(DEMO, load(delegate_path, target, fallback="litert"))
    assert host.kernels == 0
    require_equal(host.run(host.samples()), Host(DEMO).run(host.samples()))
    with pytest.raises(ValueError, match="no response from"):
        load(delegate_path, target)


# ---- Options --------------------------------------------------------------------------------------------


def test_unknown_options_are_listed(delegate_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown option 'colour'; there are ca, cache, cert, deadline_ms, device"):
        load(delegate_path, colour="red")


def test_a_missed_deadline_is_an_error(delegate_path: Path, delegate_service: Service) -> None:
    host = Host(DEMO, load(delegate_path, delegate_service.target, deadline_ms="0.000001"))
    with pytest.raises(RuntimeError, match="MISSED_DEADLINE"):
        host.run(host.samples())


def test_a_profile_is_written(delegate_path: Path, delegate_service: Service, tmp_path: Path) -> None:
    delegate = load(delegate_path, delegate_service.target, profile=str(tmp_path / "trace.json"))
    host = Host(DEMO, delegate)
    require_equal(host.run(host.samples()), Host(DEMO).run(host.samples()))
    del host, delegate
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]


def test_the_environment_names_the_service(
    delegate_path: Path, delegate_service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NNHAL_TARGET", delegate_service.target)
    with nnhal.connect(delegate_service.target) as device:
        device.prepare(DEMO, cache=True).result()
    assert Host(DEMO, load(delegate_path)).kernels == 1
