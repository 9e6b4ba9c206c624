// Descriptions of matrices for the copy engine.
#pragma once
#include <cuda.h>

#include <cstdint>

namespace lowbit::cuda {

// Rows of `columns` elements, `pitch` bytes apart, copied in swizzled boxes `box_bytes` (64 or 128) wide. What lies beyond it reads as
// zeros.
CUtensorMap matrix_map(CUtensorMapDataType type, int element_bytes, const void* data, int64_t columns, int64_t rows, int64_t pitch,
                       int box_rows, int box_bytes = 128);

// [layers][rows] of runs of `run_bytes` bytes, all contiguous, copied in boxes of whole runs, or of `box_bytes` of each; columns count
// words where a run is made of words.
CUtensorMap stack_map(const void* data, int run_bytes, int64_t rows, int64_t layers, int box_rows, int box_layers, int box_bytes = 0);

// Tokens of few: `rows` runs of `run_bytes` bytes (up to 128) of each, `pitch` bytes from token to token, copied in boxes of all tokens and
// `box_rows` of their runs, [run][token]. Runs of 128 bytes are swizzled.
CUtensorMap token_map(const void* data, int tokens, int64_t pitch, int run_bytes, int64_t rows, int box_rows);

}  // namespace lowbit::cuda
