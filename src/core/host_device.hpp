// Functions that the reference and the CUDA kernels share: one definition, so that both compute the same bits.
#pragma once

#ifdef __CUDACC__
#define LOWBIT_HOST_DEVICE __host__ __device__
#else
#define LOWBIT_HOST_DEVICE
#endif

// Unrolls a loop of constant length in device code, where an array that is indexed at run time would leave the registers.
#ifdef __CUDA_ARCH__
#define LOWBIT_UNROLL _Pragma("unroll")
#else
#define LOWBIT_UNROLL
#endif
