"""Compares operators that PyTorch converts to NNAPI with its eager mode. Prints one JSON object for each.

It runs in an environment with PyTorch only. `result` is "equal", "different", or the error.
"""

# mypy: ignore-errors
import copy
import json
import sys
import warnings

import torch
from torch.backends._nnapi.prepare import convert_model_to_nnapi
from torch.nn import functional as F

warnings.filterwarnings("ignore")
torch.manual_seed(0)
torch.backends.quantized.engine = "qnnpack"  # that of mobile devices; others compute some operators differently

NCHW, NHWC = "NCHW", "NHWC"
IMAGE = torch.randn(2, 4, 6, 8)


class Function(torch.nn.Module):
    """Module of a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *arguments):
        return self.function(*arguments)


class QuantizedAdd(torch.nn.Module):
    """Binary operation on quantized tensors: add, add_relu or mul."""

    def __init__(self, name):
        super().__init__()
        self.operations = torch.ao.nn.quantized.QFunctional()
        self.operations.scale, self.operations.zero_point = 0.1, 64
        self.name = name

    def forward(self, a, b):
        return getattr(self.operations, self.name)(a, b)


def quantize(tensor, scale=0.05, zero_point=128):
    return torch.quantize_per_tensor(tensor, scale, zero_point, torch.quint8)


def quantized_module(kind, module):
    """Return a quantized convolution or linear module with quantized weights and a float bias."""
    shape = module.weight().shape
    weight = torch.quantize_per_tensor(torch.randn(shape), 0.02, 0, torch.qint8)
    kind.set_weight_bias(module, weight, torch.randn(shape[1 if "Transpose" in kind.__name__ else 0]))
    module.scale, module.zero_point = 0.2, 100
    return module


def quantized_cases():
    quantized = torch.ao.nn.quantized
    image, row = quantize(IMAGE), quantize(torch.randn(3, 4))
    fused = torch.ao.nn.intrinsic.quantized.ConvReLU2d
    yield "quantized::linear", quantized_module(quantized.Linear, quantized.Linear(4, 5)), (row,)
    yield "quantized::conv2d", quantized_module(quantized.Conv2d, quantized.Conv2d(4, 3, 3)), (image,)
    yield (
        "quantized::conv2d depthwise",
        quantized_module(quantized.Conv2d, quantized.Conv2d(4, 4, 3, groups=4, padding=1)),
        (image,),
    )
    yield "quantized::conv2d_relu", quantized_module(fused, fused(4, 3, 3)), (image,)
    yield (
        "quantized::conv_transpose2d",
        quantized_module(quantized.ConvTranspose2d, quantized.ConvTranspose2d(4, 3, 2)),
        (image,),
    )
    for name in ("add", "add_relu", "mul"):
        yield f"quantized::{name}", QuantizedAdd(name), (image, quantize(torch.randn(2, 4, 6, 8)))
    yield "aten::dequantize", Function(lambda x: x.dequantize()), (image,)
    yield "aten::relu quantized", torch.nn.ReLU(), (image,)
    yield "aten::max_pool2d quantized", torch.nn.MaxPool2d(2), (image,)
    yield "aten::avg_pool2d quantized", torch.nn.AvgPool2d(2), (image,)
    yield "aten::cat quantized", Function(lambda a, b: torch.cat([a, b], 1)), (image, image)
    yield "aten::upsample_nearest2d quantized", Function(lambda x: F.interpolate(x, (12, 16))), (image,)


def cases_of_one_layout():
    """Yield operators that PyTorch converts in one layout only."""
    yield "aten::prelu channels", NHWC, torch.nn.PReLU(4), (IMAGE,)
    to_quantized = Function(lambda x: torch.quantize_per_tensor(x, 0.1, 10, torch.quint8))
    yield "aten::quantize_per_tensor", NHWC, to_quantized, (IMAGE,)
    yield "aten::reshape quantized", NCHW, Function(lambda x: x.reshape(2, -1)), (quantize(IMAGE),)


def image_cases():
    """Yield operators on images, in both layouts."""
    yield "aten::conv2d", torch.nn.Conv2d(4, 3, 3), (IMAGE,)
    yield "aten::conv2d stride and padding", torch.nn.Conv2d(4, 8, 3, stride=2, padding=1), (IMAGE,)
    yield "aten::conv2d 1x1 without bias", torch.nn.Conv2d(4, 8, 1, bias=False), (IMAGE,)
    yield "aten::conv2d depthwise", torch.nn.Conv2d(4, 4, 3, groups=4, padding=1), (IMAGE,)
    yield "aten::_convolution transposed", torch.nn.ConvTranspose2d(4, 3, 2, stride=2), (IMAGE,)
    yield "aten::max_pool2d", torch.nn.MaxPool2d(2), (IMAGE,)
    yield "aten::max_pool2d padding", torch.nn.MaxPool2d(3, 2, 1), (IMAGE,)
    yield "aten::avg_pool2d", torch.nn.AvgPool2d(2), (IMAGE,)
    yield "aten::adaptive_avg_pool2d", torch.nn.AdaptiveAvgPool2d((1, 1)), (IMAGE,)
    yield "aten::upsample_nearest2d size", Function(lambda x: F.interpolate(x, (12, 16))), (IMAGE,)
    yield "aten::upsample_nearest2d scale", torch.nn.UpsamplingNearest2d(scale_factor=2), (IMAGE,)
    yield "aten::prelu", torch.nn.PReLU(), (IMAGE,)
    yield "aten::hardtanh 6", torch.nn.ReLU6(), (IMAGE,)
    yield "aten::hardtanh 1", torch.nn.Hardtanh(), (IMAGE,)
    yield "aten::relu", torch.nn.ReLU(), (IMAGE,)
    yield "aten::sigmoid", torch.nn.Sigmoid(), (IMAGE,)
    yield "aten::mean", Function(lambda x: x.mean([2, 3])), (IMAGE,)
    yield "aten::mean keepdim", Function(lambda x: x.mean([2, 3], keepdim=True)), (IMAGE,)
    yield "aten::cat channels", Function(lambda a, b: torch.cat([a, b], 1)), (IMAGE, IMAGE + 1)
    yield "aten::add", Function(lambda a, b: a + b), (IMAGE, IMAGE * 2)
    yield "aten::sub", Function(lambda a, b: a - b), (IMAGE, IMAGE * 2)
    yield "aten::mul", Function(lambda a, b: a * b), (IMAGE, IMAGE * 2)
    yield "aten::div", Function(lambda a, b: a / b), (IMAGE, IMAGE.abs() + 1)


def other_cases():
    """Yield operators on tensors without a layout."""
    rows = torch.randn(3, 4)
    yield "aten::linear", torch.nn.Linear(4, 5), (rows,)
    weight, bias = torch.randn(4, 5), torch.randn(5)
    yield "aten::addmm", Addmm(weight, bias), (rows,)
    yield "aten::softmax", torch.nn.Softmax(dim=-1), (rows,)
    yield "aten::log_softmax", torch.nn.LogSoftmax(dim=-1), (rows,)
    yield "aten::unsqueeze", Function(lambda x: x.unsqueeze(1)), (rows,)
    yield "aten::reshape", Function(lambda x: x.reshape(2, 6)), (rows,)
    yield "aten::reshape by size", Function(lambda x: x.reshape(x.size(0), -1)), (IMAGE,)
    yield "aten::flatten", torch.nn.Flatten(), (IMAGE,)
    yield "aten::slice", Function(lambda x: x[:, 1:3]), (rows,)
    yield "aten::slice step", Function(lambda x: x[:, 1:3:2]), (rows,)
    yield "aten::cat", Function(lambda a, b: torch.cat([a, b], 0)), (rows, rows + 1)
    yield "aten::detach", Function(lambda x: x.detach() + x), (rows,)
    yield "aten::to", Function(lambda x: x.to("cpu") + x), (rows,)
    yield "prim::TupleConstruct", Function(lambda x: (x + x, x * x)), (rows,)
    yield "aten::reshape rank 5", Function(lambda x: x.reshape(6, 4)), (torch.randn(1, 2, 3, 2, 2),)


class Addmm(torch.nn.Module):
    """Matrix product with a bias."""

    def __init__(self, weight, bias):
        super().__init__()
        self.weight, self.bias = torch.nn.Parameter(weight), torch.nn.Parameter(bias)

    def forward(self, x):
        return torch.addmm(self.bias, x, self.weight)


def compare(module, arguments, layout):
    """Return the result of a comparison: one unit of the quantization may differ."""
    module = module.eval()
    if layout == NHWC:
        arguments = [x.contiguous(memory_format=torch.channels_last) for x in arguments]
    expected = module(*arguments)
    with torch.no_grad():
        traced = torch.jit.trace(module, arguments)
    given = list(copy.copy(arguments))
    if layout == NHWC:
        for x in given:
            x.nnapi_nhwc = True
    converted = convert_model_to_nnapi(traced, given)
    actual = converted(*given)
    pairs = zip(expected, actual, strict=True) if isinstance(expected, tuple) else [(expected, actual)]
    return "equal" if all(is_close(*pair) for pair in pairs) else "different"


def is_close(expected, actual):
    if expected.is_quantized:
        difference = (expected.int_repr().int() - actual.int_repr().int()).abs().max().item()
        return actual.is_quantized and expected.shape == actual.shape and difference <= 1
    return expected.shape == actual.shape and torch.allclose(expected, actual, rtol=1e-5, atol=1e-5)


def cases():
    for layout in (NCHW, NHWC):
        yield from ((name, layout, module, arguments) for name, module, arguments in image_cases())
    yield from ((name, NCHW, module, arguments) for name, module, arguments in other_cases())
    yield from cases_of_one_layout()
    for layout in (NCHW, NHWC):
        for name, module, arguments in quantized_cases():
            if layout == NCHW or all(x.dim() == 4 for x in arguments):
                yield name, layout, module, arguments


def main():
    for name, layout, module, arguments in cases():
        try:
            result = compare(module, arguments, layout)
        except Exception as error:
            result = f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}"
        print(json.dumps({"operator": name, "layout": layout, "result": result}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
