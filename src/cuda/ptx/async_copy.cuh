// The copy engine of sm_90 and the barriers that count its bytes; launches that begin before the one they depend on has ended. On earlier
// chips these compile to nothing: the registry keeps kernels that use them away.
#pragma once
#include <cstdint>

#include "cuda/ptx/shared_memory.cuh"

namespace lowbit::cuda::ptx {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define LOWBIT_HOPPER 1
#else
#define LOWBIT_HOPPER 0
#endif

using Barrier = uint64_t;

__device__ inline void init_barrier(Barrier* barrier, int arrivals) {
#if LOWBIT_HOPPER
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
#endif
}

// Makes barriers known to the copy engine, after their initialisation.
__device__ inline void publish_barriers() {
#if LOWBIT_HOPPER
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

// One arrival, and `bytes` more to come by copies.
__device__ inline void expect_bytes(Barrier* barrier, uint32_t bytes) {
#if LOWBIT_HOPPER
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
#endif
}

__device__ inline void wait_for(Barrier* barrier, uint32_t parity) {
#if LOWBIT_HOPPER
    asm volatile(
        "{\n"
        "  .reg .pred done;\n"
        "again:\n"
        "  mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%0], %1;\n"
        "  @!done bra again;\n"
        "}" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory");
#endif
}

__device__ inline void arrive(Barrier* barrier) {
#if LOWBIT_HOPPER
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
#endif
}

// A run of bytes, a multiple of 16, both addresses aligned to 16.
__device__ inline void copy_run(void* shared, const void* global, uint32_t bytes, Barrier* barrier) {
#if LOWBIT_HOPPER
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(shared)),
                 "l"(global), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
#endif
}

// From here on the next launch of the stream may begin, where it was asked to begin early.
__device__ inline void let_dependents_begin() {
#if LOWBIT_HOPPER
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}
// Until the launch before has ended and its results can be read; at once where this one was not asked to begin early.
__device__ inline void wait_for_previous_launch() {
#if LOWBIT_HOPPER
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace lowbit::cuda::ptx
