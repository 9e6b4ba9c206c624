// Functions that the reference and the CUDA kernels share: one definition, so that both compute the same bits.
#pragma once

#ifdef __CUDACC__
#define LOWBIT_HOST_DEVICE __host__ __device__
#else
#define LOWBIT_HOST_DEVICE
#endif

// LOWBIT_UNROLL unrolls a loop of constant length in device code, where an array that is indexed at run time would leave the registers.
// LOWBIT_ROLLED keeps a loop whose copies would only cost compile time.
#ifdef __CUDA_ARCH__
#define LOWBIT_UNROLL _Pragma("unroll")
#define LOWBIT_ROLLED _Pragma("unroll 1")
#else
#define LOWBIT_UNROLL
#define LOWBIT_ROLLED
#endif
