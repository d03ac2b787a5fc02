"""Runs a MobileNet of torchvision through NNAPI and in eager mode. Prints the largest difference of the logits.

It runs in an environment with PyTorch and torchvision only. The weights are random.
"""

# mypy: ignore-errors
import warnings

import torch

warnings.filterwarnings("ignore")
# torchvision's operators are for CUDA in its wheel. MobileNet uses none, but the import needs their declarations.
operators = torch.library.Library("torchvision", "DEF")
for name in ("nms", "qnms"):
    operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

import torchvision  # noqa: E402
from torch.backends._nnapi.prepare import convert_model_to_nnapi  # noqa: E402
from torch.fx.experimental.optimization import fuse  # noqa: E402


def main():
    torch.manual_seed(0)
    model = torchvision.models.mobilenet_v2(weights=None).eval()
    model.classifier[0] = torch.nn.Identity()  # a dropout, which PyTorch does not convert
    for module in model.modules():
        if isinstance(module, torch.nn.ReLU6):
            module.inplace = False  # NNAPI has no operation that changes its input
    image = torch.randn(2, 3, 224, 224).contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        expected = model(image)
        traced = torch.jit.trace(fuse(model), image)  # NNAPI has no batch normalization
    image.nnapi_nhwc = True
    actual = convert_model_to_nnapi(traced, [image])(image)
    scale = expected.abs().max().item()
    print((expected - actual).abs().max().item() / scale)


if __name__ == "__main__":
    main()
