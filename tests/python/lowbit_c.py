"""lowbit.h for the tests: ctypes mirrors of its structs, and the verbs on numpy arrays.

A quantized matrix is a dict of its planes in the plain layout: "format", "rows", "columns", "codes" (uint8, rows x row_bytes), and
"scales", "zero_points", "tensor_scale", each None where the format has none.
"""

import ctypes
import os
from contextlib import ExitStack
from ctypes import POINTER, byref, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t, c_void_p
from pathlib import Path

import numpy as np

ELEMENTS = {
    "fp32": 0, "fp16": 1, "bf16": 2, "int32": 3, "int8": 4, "uint8": 5, "int4": 6, "uint4": 7, "int1": 8, "fp8_e4m3": 9, "fp8_e5m2": 10,
    "fp4_e2m1": 11, "nf4": 12, "e8m0": 13, "q4_0": 32, "q4_1": 33, "q5_0": 34, "q5_1": 35, "q8_0": 36, "q8_1": 37, "q2_k": 38, "q3_k": 39,
    "q4_k": 40, "q5_k": 41, "q6_k": 42, "iq4_nl": 43,
}  # fmt: skip
ACTIVATIONS = {"none": 0, "relu": 1, "gelu": 2, "gelu_tanh": 3, "silu": 4}

# numpy knows bfloat16 only by the name that ml_dtypes gives it.
ELEMENT_OF_DTYPE = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "int32": "int32", "int8": "int8"}
# Scales that numpy has no type for stay the bits they are.
DTYPE_OF_SCALE = {"fp32": np.float32, "fp16": np.float16, "bf16": np.uint16, "e8m0": np.uint8, "fp8_e4m3": np.uint8}


class LowbitError(Exception):
    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


class SizedStruct(ctypes.Structure):
    """A struct whose first field is its own size, as LOWBIT_..._INIT fills it."""

    def __init__(self, **fields):
        super().__init__(size=ctypes.sizeof(type(self)), **fields)


class Format(ctypes.Structure):
    _fields_ = [
        ("element", c_int32), ("granularity", c_int32), ("scale", c_int32), ("asymmetric", c_int32), ("group_columns", c_int64),
        ("group_rows", c_int64),
    ]  # fmt: skip


class FormatSizes(SizedStruct):
    _fields_ = [
        ("size", c_size_t), ("bits_per_weight", c_double), ("row_bytes", c_int64), ("code_bytes", c_int64), ("scale_rows", c_int64),
        ("scale_columns", c_int64), ("scale_bytes", c_int64), ("zero_point_bytes", c_int64), ("tensor_scale_bytes", c_int64),
        ("total_bytes", c_int64),
    ]  # fmt: skip


class Tensor(SizedStruct):
    _fields_ = [
        ("size", c_size_t), ("data", c_void_p), ("element", c_int32), ("rank", c_int32), ("shape", c_int64 * 2), ("strides", c_int64 * 2),
        ("device", c_int32), ("device_index", c_int32),
    ]  # fmt: skip


class QuantizedView(SizedStruct):
    _fields_ = [
        ("size", c_size_t), ("format", Format), ("rows", c_int64), ("columns", c_int64), ("codes", c_void_p), ("scales", c_void_p),
        ("zero_points", c_void_p), ("tensor_scale", c_void_p), ("device", c_int32), ("device_index", c_int32),
    ]  # fmt: skip


class QuantizeArgs(SizedStruct):
    _fields_ = [
        ("size", c_size_t), ("x", Tensor), ("format", c_char_p), ("scales", c_void_p), ("zero_points", c_void_p),
        ("tensor_scale", c_void_p),
    ]  # fmt: skip


class Operand(ctypes.Structure):
    _fields_ = [("tensor", POINTER(Tensor)), ("quantized", c_void_p), ("packed", c_void_p)]


class MatmulArgs(SizedStruct):
    _fields_ = [
        ("size", c_size_t), ("x", Operand), ("weight", Operand), ("y", Tensor), ("bias", POINTER(Tensor)), ("row_scale", POINTER(Tensor)),
        ("column_scale", POINTER(Tensor)), ("scale", c_float), ("output_scale", c_float), ("activation", c_int32), ("gate", c_int32),
        ("x_format", c_char_p),
    ]  # fmt: skip


SIGNATURES = {
    "lowbit_format_parse": [c_char_p, POINTER(Format)],
    "lowbit_format_measure": [POINTER(Format), c_int64, c_int64, POINTER(FormatSizes)],
    "lowbit_context_create_cpu": [POINTER(c_void_p)],
    "lowbit_quantize_into": [c_void_p, POINTER(QuantizeArgs), POINTER(QuantizedView)],
    "lowbit_quantized_borrow": [POINTER(QuantizedView), POINTER(c_void_p)],
    "lowbit_dequantize": [c_void_p, c_void_p, POINTER(Tensor)],
    "lowbit_pack": [c_void_p, c_void_p, POINTER(c_void_p)],
    "lowbit_matmul": [c_void_p, POINTER(MatmulArgs)],
}
DESTROYERS = ["lowbit_context_destroy", "lowbit_quantized_destroy", "lowbit_packed_destroy"]


def _load():
    root = Path(__file__).resolve().parents[2]
    path = os.environ.get("LOWBIT_LIBRARY", str(root / "build" / "release" / "liblowbit.so"))
    if not Path(path).exists():
        raise FileNotFoundError(f"{path}: build the library first (cmake --build --preset release), or set LOWBIT_LIBRARY")
    library = ctypes.CDLL(path)
    library.lowbit_last_error.restype = c_char_p
    for name, arguments in SIGNATURES.items():
        getattr(library, name).argtypes = arguments
        getattr(library, name).restype = c_int32
    for name in DESTROYERS:
        getattr(library, name).argtypes = [c_void_p]
        getattr(library, name).restype = None
    return library


_state = {}


def library():
    if "library" not in _state:
        _state["library"] = _load()
    return _state["library"]


def context():
    """The CPU context that all calls here share; it lives as long as the process."""
    if "context" not in _state:
        handle = c_void_p()
        _call("lowbit_context_create_cpu", byref(handle))
        _state["context"] = handle
    return _state["context"]


def _call(name, *arguments):
    status = getattr(library(), name)(*arguments)
    if status != 0:
        raise LowbitError(status, library().lowbit_last_error().decode())


def _pointer(array):
    return None if array is None else array.ctypes.data


def parse(format):
    parsed = Format()
    _call("lowbit_format_parse", format.encode(), byref(parsed))
    return parsed


def measure(format, rows, columns):
    sizes = FormatSizes()
    _call("lowbit_format_measure", byref(parse(format)), rows, columns, byref(sizes))
    return sizes


def tensor(array):
    """A view of a vector or matrix with any strides; the array must outlive it."""
    if array.ndim not in (1, 2):
        raise ValueError(f"a tensor has 1 or 2 dimensions, not {array.ndim}")
    shape = tuple(array.shape) + (0,) * (2 - array.ndim)
    strides = tuple(stride // array.itemsize for stride in array.strides) + (0,) * (2 - array.ndim)
    element = ELEMENTS[ELEMENT_OF_DTYPE[array.dtype.name]]
    return Tensor(data=array.ctypes.data, element=element, rank=array.ndim, shape=shape, strides=strides)


def empty_planes(format, rows, columns):
    parsed, sizes = parse(format), measure(format, rows, columns)
    scale_name = next(name for name, element in ELEMENTS.items() if element == parsed.scale)
    scale_shape = (sizes.scale_rows, sizes.scale_columns)
    return {
        "format": format,
        "rows": rows,
        "columns": columns,
        "codes": np.zeros((rows, sizes.row_bytes), np.uint8),
        "scales": np.zeros(scale_shape, DTYPE_OF_SCALE[scale_name]) if sizes.scale_bytes else None,
        "zero_points": np.zeros(scale_shape, np.uint8) if sizes.zero_point_bytes else None,
        "tensor_scale": np.zeros(1, np.float32) if sizes.tensor_scale_bytes else None,
    }


def _view(planes):
    return QuantizedView(
        format=parse(planes["format"]),
        rows=planes["rows"],
        columns=planes["columns"],
        codes=_pointer(planes["codes"]),
        scales=_pointer(planes["scales"]),
        zero_points=_pointer(planes["zero_points"]),
        tensor_scale=_pointer(planes["tensor_scale"]),
    )


def quantize(x, format, scales=None, zero_points=None, tensor_scale=None):
    """x in a format, as planes. Static scales are used as given: a number stands for all of them, an array has the shape of its plane."""
    planes = empty_planes(format, *x.shape)
    static = {"scales": scales, "zero_points": zero_points, "tensor_scale": tensor_scale}
    for name, given in static.items():
        if given is None:
            continue
        if planes[name] is None:
            raise ValueError(f"{format} has no {name}")
        values = np.asarray(given, planes[name].dtype)
        if values.ndim and values.shape != planes[name].shape:
            raise ValueError(f"{name} of {format} have the shape {planes[name].shape}, not {values.shape}")
        static[name] = np.full(planes[name].shape, values)
    arguments = QuantizeArgs(
        x=tensor(x),
        format=format.encode(),
        scales=_pointer(static["scales"]),
        zero_points=_pointer(static["zero_points"]),
        tensor_scale=_pointer(static["tensor_scale"]),
    )
    _call("lowbit_quantize_into", context(), byref(arguments), byref(_view(planes)))
    return planes


def _borrow(stack, planes):
    handle = c_void_p()
    _call("lowbit_quantized_borrow", byref(_view(planes)), byref(handle))
    stack.callback(library().lowbit_quantized_destroy, handle)
    return handle


def dequantize(planes, dtype=np.float32):
    y = np.zeros((planes["rows"], planes["columns"]), dtype)
    with ExitStack() as stack:
        _call("lowbit_dequantize", context(), _borrow(stack, planes), byref(tensor(y)))
    return y


def _operand(stack, value, pack):
    if not isinstance(value, dict):
        return Operand(tensor=ctypes.pointer(tensor(value)))
    quantized = _borrow(stack, value)
    if not pack:
        return Operand(quantized=quantized)
    packed = c_void_p()
    _call("lowbit_pack", context(), quantized, byref(packed))
    stack.callback(library().lowbit_packed_destroy, packed)
    return Operand(packed=packed)


def matmul(x, weight, *, dtype=np.float32, pack=False, bias=None, row_scale=None, column_scale=None, scale=1.0, output_scale=1.0,
           activation="none", x_format=None):  # fmt: skip
    """x [M,K] times weight [N,K] transposed; each an array or planes. pack: rearrange the weight for the kernels first."""
    rows, columns = (side["rows"] if isinstance(side, dict) else side.shape[0] for side in (x, weight))
    y = np.zeros((rows, columns), dtype)
    vectors = {name: ctypes.pointer(tensor(vector))
               for name, vector in {"bias": bias, "row_scale": row_scale, "column_scale": column_scale}.items()
               if vector is not None}  # fmt: skip
    with ExitStack() as stack:
        arguments = MatmulArgs(
            x=_operand(stack, x, False),
            weight=_operand(stack, weight, pack),
            y=tensor(y),
            scale=scale,
            output_scale=output_scale,
            activation=ACTIVATIONS[activation],
            x_format=x_format.encode() if x_format else None,
            **vectors,
        )
        _call("lowbit_matmul", context(), byref(arguments))
    return y
