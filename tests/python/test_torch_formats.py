"""Formats in Python: the sizes of the planes are those that the library measures."""

import pytest

from torch_cases import FORMATS, lowbit, torch  # noqa: F401  (skips when there is no package)

from lowbit import _c, _format

SHAPES = [(0, 256), (1, 0), (1, 256), (3, 256), (130, 512), (64, 1024)]
RAGGED = [(1, 1), (3, 33), (7, 129), (129, 200), (5, 127)]


@pytest.mark.parametrize("format", FORMATS)
def test_planes_are_those_that_the_library_measures(format):
    parsed = _format.parse(format)
    for rows, columns in SHAPES + ([] if parsed.is_ggml else RAGGED):
        sizes, shapes = _c.measure(_c.parse(format), rows, columns), parsed.planes(rows, columns)
        assert shapes.codes[0] * shapes.codes[1] * parsed.codes_dtype.itemsize == sizes.code_bytes
        assert shapes.scales == (sizes.scale_rows, sizes.scale_columns)
        assert shapes.scales[0] * shapes.scales[1] * parsed.scales_dtype.itemsize == sizes.scale_bytes
        assert shapes.zeros[0] * shapes.zeros[1] == sizes.zero_point_bytes
        assert shapes.tensor_scale[0] * 4 == sizes.tensor_scale_bytes


@pytest.mark.parametrize("format", ["q4_0", "q4_k"])
def test_ggml_blocks_are_whole(format):
    with pytest.raises(ValueError, match="do not divide K = 100; pad K to"):
        _format.parse(format).planes(4, 100)


def test_names_are_canonical():
    assert _format.parse("fp4_e2m1:g32:scale_e8m0").name == "mxfp4"
    assert lowbit.quantize(torch.ones(2, 32), "fp4_e2m1:g32:scale_e8m0").format == "mxfp4"


@pytest.mark.parametrize("text", ["int5:row", "", "int4", "int4:g0"])
def test_what_is_no_format_is_refused(text):
    with pytest.raises(ValueError):
        lowbit.quantize(torch.ones(2, 32), text)
