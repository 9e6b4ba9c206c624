"""The few functions of lowbit.h that the package calls without tensors: formats, layouts, this machine."""

import ctypes
from ctypes import POINTER, byref, c_char_p, c_double, c_int32, c_int64, c_size_t, c_void_p

from ._load import LIBRARY

INVALID_ARGUMENT, UNSUPPORTED = 1, 2


class Format(ctypes.Structure):
    _fields_ = [
        ("element", c_int32), ("granularity", c_int32), ("scale", c_int32), ("asymmetric", c_int32), ("group_columns", c_int64),
        ("group_rows", c_int64),
    ]  # fmt: skip


class FormatSizes(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("bits_per_weight", c_double), ("row_bytes", c_int64), ("code_bytes", c_int64), ("scale_rows", c_int64),
        ("scale_columns", c_int64), ("scale_bytes", c_int64), ("zero_point_bytes", c_int64), ("tensor_scale_bytes", c_int64),
        ("total_bytes", c_int64),
    ]  # fmt: skip


_SIGNATURES = {
    "lowbit_format_parse": [c_char_p, POINTER(Format)],
    "lowbit_format_print": [POINTER(Format), c_char_p, c_size_t],
    "lowbit_format_measure": [POINTER(Format), c_int64, c_int64, POINTER(FormatSizes)],
    "lowbit_context_create_cpu": [POINTER(c_void_p)],
    "lowbit_context_create_cuda": [c_int32, c_void_p, POINTER(c_void_p)],
    "lowbit_pack_layout": [c_void_p, POINTER(Format), POINTER(c_int32)],
    "lowbit_info": [c_char_p, c_size_t, POINTER(c_size_t)],
}
for _name, _arguments in _SIGNATURES.items():
    getattr(LIBRARY, _name).argtypes = _arguments
    getattr(LIBRARY, _name).restype = c_int32
LIBRARY.lowbit_context_destroy.argtypes = [c_void_p]
LIBRARY.lowbit_context_destroy.restype = None
LIBRARY.lowbit_last_error.restype = c_char_p
LIBRARY.lowbit_version.restype = c_char_p


def call(name: str, *arguments: object) -> None:
    """Calls a function of lowbit.h; a failure becomes the exception that the ops raise for it too."""
    status = getattr(LIBRARY, name)(*arguments)
    if status != 0:
        text = LIBRARY.lowbit_last_error().decode()
        raise ValueError(text) if status == INVALID_ARGUMENT else RuntimeError(text)


def parse(text: str) -> Format:
    parsed = Format()
    call("lowbit_format_parse", text.encode(), byref(parsed))
    return parsed


def print_format(parsed: Format) -> str:
    text = ctypes.create_string_buffer(64)
    call("lowbit_format_print", byref(parsed), text, 64)
    return text.value.decode()


def measure(parsed: Format, rows: int, columns: int) -> FormatSizes:
    sizes = FormatSizes(size=ctypes.sizeof(FormatSizes))
    call("lowbit_format_measure", byref(parsed), rows, columns, byref(sizes))
    return sizes


def pack_layout(parsed: Format, device_type: str, device_index: int) -> int:
    context, layout = c_void_p(), c_int32()
    if device_type == "cuda":
        call("lowbit_context_create_cuda", device_index, None, byref(context))
    else:
        call("lowbit_context_create_cpu", byref(context))
    try:
        call("lowbit_pack_layout", context, byref(parsed), byref(layout))
    finally:
        LIBRARY.lowbit_context_destroy(context)
    return layout.value


def info() -> str:
    length = c_size_t()
    call("lowbit_info", None, 0, byref(length))
    text = ctypes.create_string_buffer(length.value + 1)
    call("lowbit_info", text, length.value + 1, byref(length))
    return text.value.decode()


def version() -> str:
    return LIBRARY.lowbit_version().decode()
