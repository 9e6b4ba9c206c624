// The ops, in the boxed form that the stable ABI registers; library.cpp has their schemas.
#pragma once
#include <torch/csrc/stable/library.h>

namespace lowbit_torch {

void quantize(StableIValue* stack, uint64_t inputs, uint64_t outputs);
void dequantize(StableIValue* stack, uint64_t inputs, uint64_t outputs);
void pack(StableIValue* stack, uint64_t inputs, uint64_t outputs);
void unpack(StableIValue* stack, uint64_t inputs, uint64_t outputs);
void matmul(StableIValue* stack, uint64_t inputs, uint64_t outputs);
void explain(StableIValue* stack, uint64_t inputs, uint64_t outputs);
void gemm(StableIValue* stack, uint64_t inputs, uint64_t outputs);
void convert(StableIValue* stack, uint64_t inputs, uint64_t outputs);
void binary_conv2d(StableIValue* stack, uint64_t inputs, uint64_t outputs);
void sign_bits(StableIValue* stack, uint64_t inputs, uint64_t outputs);

}  // namespace lowbit_torch
