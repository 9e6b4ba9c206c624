// The enumerations of lowbit.h as C++ types; one list of values serves C, C++ and the library's own code.
#pragma once
#include <cstdint>

#include "lowbit/lowbit.h"

namespace lowbit {

enum class Status : int32_t {
    ok = LOWBIT_OK,
    invalid_argument = LOWBIT_INVALID_ARGUMENT,
    unsupported = LOWBIT_UNSUPPORTED,
    out_of_memory = LOWBIT_OUT_OF_MEMORY,
    device_error = LOWBIT_DEVICE_ERROR,
    io_error = LOWBIT_IO_ERROR,
    internal_error = LOWBIT_INTERNAL_ERROR,
};

enum class Element : int32_t {
    fp32 = LOWBIT_FP32,
    fp16 = LOWBIT_FP16,
    bf16 = LOWBIT_BF16,
    int32 = LOWBIT_INT32,
    int8 = LOWBIT_INT8,
    uint8 = LOWBIT_UINT8,
    int4 = LOWBIT_INT4,
    uint4 = LOWBIT_UINT4,
    int1 = LOWBIT_INT1,
    fp8_e4m3 = LOWBIT_FP8_E4M3,
    fp8_e5m2 = LOWBIT_FP8_E5M2,
    fp4_e2m1 = LOWBIT_FP4_E2M1,
    nf4 = LOWBIT_NF4,
    e8m0 = LOWBIT_E8M0,
    q4_0 = LOWBIT_Q4_0,
    q4_1 = LOWBIT_Q4_1,
    q5_0 = LOWBIT_Q5_0,
    q5_1 = LOWBIT_Q5_1,
    q8_0 = LOWBIT_Q8_0,
    q8_1 = LOWBIT_Q8_1,
    q2_k = LOWBIT_Q2_K,
    q3_k = LOWBIT_Q3_K,
    q4_k = LOWBIT_Q4_K,
    q5_k = LOWBIT_Q5_K,
    q6_k = LOWBIT_Q6_K,
    iq4_nl = LOWBIT_IQ4_NL,
};

enum class Granularity : int32_t {
    none = LOWBIT_SCALE_NONE,      // plain numbers, or blocks that carry their own scales
    tensor = LOWBIT_SCALE_TENSOR,  // one scale
    row = LOWBIT_SCALE_ROW,        // one per row
    group = LOWBIT_SCALE_GROUP,    // one per row and `columns` values along K
    block = LOWBIT_SCALE_BLOCK,    // one per `rows` x `columns` values
};

enum class Activation : int32_t {
    none = LOWBIT_ACTIVATION_NONE,
    relu = LOWBIT_ACTIVATION_RELU,
    gelu = LOWBIT_ACTIVATION_GELU,            // with erf
    gelu_tanh = LOWBIT_ACTIVATION_GELU_TANH,  // with tanh
    silu = LOWBIT_ACTIVATION_SILU,
};

enum class Device : int32_t { cpu = LOWBIT_CPU, cuda = LOWBIT_CUDA };

}  // namespace lowbit
