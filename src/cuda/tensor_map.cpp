#include "cuda/tensor_map.hpp"

#include "cuda/launch.cuh"

namespace lowbit::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// Through the runtime: the library does not link the driver, which a machine without a GPU has not.
Encode find_encode() {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result;
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result), "cuTensorMapEncodeTiled");
    if (found == nullptr) core::fail(Status::device_error, "the driver has no cuTensorMapEncodeTiled; it is older than CUDA 12.0");
    return reinterpret_cast<Encode>(found);
}

CUtensorMap encode(CUtensorMapDataType type, uint32_t dimensions, const void* data, const uint64_t* sizes, const uint64_t* pitches,
                   const uint32_t* box, CUtensorMapSwizzle swizzle) {
    static const Encode function = find_encode();
    const uint32_t steps[3] = {1, 1, 1};
    CUtensorMap map;
    const CUresult result =
        function(&map, type, dimensions, const_cast<void*>(data), sizes, pitches, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                 CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) core::fail(Status::device_error, "cuTensorMapEncodeTiled: error ", int(result));
    return map;
}

}  // namespace

CUtensorMap matrix_map(CUtensorMapDataType type, int element_bytes, const void* data, int64_t columns, int64_t rows, int64_t pitch,
                       int box_rows, int box_bytes) {
    const uint64_t sizes[2] = {uint64_t(columns), uint64_t(rows)}, pitches[1] = {uint64_t(pitch)};
    const uint32_t box[2] = {uint32_t(box_bytes / element_bytes), uint32_t(box_rows)};
    return encode(type, 2, data, sizes, pitches, box, box_bytes == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B);
}

CUtensorMap stack_map(const void* data, int run_bytes, int64_t rows, int64_t layers, int box_rows, int box_layers, int box_bytes) {
    // Words where there are many bytes: a box has at most 256 elements along each side.
    const bool words = run_bytes % 4 == 0;
    const int element = words ? 4 : 1, elements = run_bytes / element;
    const uint64_t sizes[3] = {uint64_t(elements), uint64_t(rows), uint64_t(layers)};
    const uint64_t pitches[2] = {uint64_t(run_bytes), uint64_t(run_bytes) * uint64_t(rows)};
    const uint32_t box[3] = {uint32_t(box_bytes ? box_bytes / element : elements), uint32_t(box_rows), uint32_t(box_layers)};
    return encode(words ? CU_TENSOR_MAP_DATA_TYPE_UINT32 : CU_TENSOR_MAP_DATA_TYPE_UINT8, 3, data, sizes, pitches, box,
                  CU_TENSOR_MAP_SWIZZLE_NONE);
}

CUtensorMap token_map(const void* data, int tokens, int64_t pitch, int run_bytes, int64_t rows, int box_rows) {
    const uint64_t sizes[3] = {uint64_t(run_bytes), uint64_t(tokens), uint64_t(rows)}, pitches[2] = {uint64_t(pitch), uint64_t(run_bytes)};
    const uint32_t box[3] = {uint32_t(run_bytes), uint32_t(tokens), uint32_t(box_rows)};
    return encode(CU_TENSOR_MAP_DATA_TYPE_UINT8, 3, data, sizes, pitches, box,
                  run_bytes == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE);
}

}  // namespace lowbit::cuda
