"""lowbit: matrices in 1 to 16 bits, and their products, on CPU and CUDA tensors.

    q = lowbit.quantize(weight, "int4:g128")                       # QTensor(int4:g128, 4096 x 14336, 30.3 MB, cuda:0)
    y = lowbit.matmul(x, q, bias=bias, activation="silu")
    layer = lowbit.nn.QuantizedLinear.from_linear(linear, "w4a16")
    lowbit.merge_(model)                                           # q, k and v as one product, gate and up as another; before quantize_
    report = lowbit.quantize_(model, "w4a16", exclude="lm_head")   # in place; print(report) is a table
"""

from . import _load  # noqa: F401  (first: it says what is missing)

from . import nn  # isort: skip
from ._binary import binary_conv2d, binary_linear, sign_bits
from ._file import load_file, save_file
from ._info import info
from ._launch import dependent_launch
from ._matmul import explain, matmul
from ._merge import merge_
from ._model import quantize_
from ._qtensor import QTensor, pack, quantize
from ._report import LayerReport, MergeReport, ModuleReport, Report
from ._c import version as _version
from .plain import (
    convert,
    dequantize_q4_0,
    dequantize_tensor,
    gemm,
    gemm_q4_0_q8_1,
    int4_matmul,
    int8_matmul,
    quantize_q4_0,
    quantize_q8_1,
    quantize_tensor,
)
from .schemes import SCHEMES, Scheme

__version__ = _version()
__all__ = [
    "QTensor", "quantize", "pack", "matmul", "explain", "binary_conv2d", "binary_linear", "sign_bits", "dependent_launch", "info", "nn",
    "quantize_", "Report", "LayerReport", "merge_", "MergeReport", "ModuleReport", "Scheme", "SCHEMES", "save_file", "load_file",
    "quantize_tensor", "dequantize_tensor", "int8_matmul", "int4_matmul", "gemm", "convert", "quantize_q4_0", "quantize_q8_1",
    "dequantize_q4_0", "gemm_q4_0_q8_1",
]  # fmt: skip
