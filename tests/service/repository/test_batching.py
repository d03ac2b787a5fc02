"""Batches of models by name: which models may join, and why others may not."""

from pathlib import Path

import pytest

from nnhal_driver.execution.batching import BatchedModel
from nnhal_service.repository.repository import UnavailableModelError
from nnhal_service.server import Server
from nnhal_service.settings import Settings
from tests.nnhal.tflite.build import Op, Tensor, build, ints, options
from tests.service.repository.counting import counting
from tests.service.repository.model_files import adding, adding_to_items, put


def centered() -> bytes:
    """Return a file that subtracts the mean of all items."""
    x, mean, y = Tensor((2, 3)), Tensor((1, 3)), Tensor((2, 3))
    means = Op("MEAN", [x, ints(0)], [mean], options("Reducer", keepDims=True))
    return build(means, Op("SUB", [x, mean], [y], options("Sub")))


def summed() -> bytes:
    """Return a file that adds all items up."""
    reducer = options("Reducer", keepDims=True)
    return build(Op("SUM", [Tensor((1, 3)), ints(0)], [Tensor((1, 3))], reducer))


MODELS = {
    "good": (adding_to_items(1), ""),
    "any": (adding_to_items(1, more={"shapeSignature": [-1, 2]}), ""),
    "centered": (centered(), "output 0 of an item depends on the others"),
    "summed": (summed(), r"2 items give a tensor of shape \[1, 3\]; expected \[2, 3\]"),
    "constant": (adding(1), "option max_batch: "),
    "states": (counting(), "the model has states"),
}


@pytest.mark.parametrize("backend", ["CpuRef", "CpuAcc"])
def test_which_models_may_join(tmp_path: Path, backend: str) -> None:
    folder = tmp_path / "models"
    for name, (data, _) in MODELS.items():
        put(folder / f"{name}.tflite", data)
        put(folder / f"{name}.toml", b"max_batch = 6")
    settings = Settings(
        listen=("127.0.0.1:0",), models=str(folder), models_poll_s=1e6, backends=(backend,), cache_dir=tmp_path
    )
    with Server(settings) as server:
        assert server.repository is not None
        for name, (_, reason) in MODELS.items():
            if reason:
                with pytest.raises(UnavailableModelError, match=f"option max_batch.*{reason}|{reason}"):
                    server.repository.get(name)
                continue
            model = server.repository.get(name).prepared
            assert isinstance(model, BatchedModel)
            assert (sorted(model.batcher.models), model.item_shapes) == ([2, 4, 6], ((1, 2),))


def test_options_are_checked(tmp_path: Path) -> None:
    put(tmp_path / "a.tflite", adding_to_items(1))
    put(tmp_path / "a.toml", b"max_batch = 0")
    with Server(
        Settings(listen=("127.0.0.1:0",), models=str(tmp_path), models_poll_s=1e6, cache_dir=tmp_path)
    ) as server:
        assert server.repository is not None
        with pytest.raises(UnavailableModelError, match="option max_batch: "):
            server.repository.get("a")
