#include "cuda/gemm/launch_ampere.cuh"

namespace lowbit::cuda {

AmpereRunner fp8_runner(Groups groups) {
    using Mma = ptx::MmaFp8;
    return groups == Groups::none ? runner<Mma, RowsSource, Groups::none>() : runner<Mma, RowsSource, Groups::rows_and_tokens>();
}

// Asked for once: a build may lack code for a chip and have it run that of an older one.
bool has_fp8_product(int device) {
    static std::atomic<uint64_t> known{0}, has{0};
    const uint64_t bit = uint64_t(1) << (device % 64);
    if (!(known.load(std::memory_order_acquire) & bit)) {
        const DeviceScope scope(device);
        cudaFuncAttributes attributes{};
        using Family = AmpereFamily<ptx::MmaFp8, RowsSource, Groups::none>;
        check(cudaFuncGetAttributes(&attributes, ampere<typename Family::Few>), "cudaFuncGetAttributes");
        if (attributes.ptxVersion >= 89) has.fetch_or(bit, std::memory_order_relaxed);
        known.fetch_or(bit, std::memory_order_release);
    }
    return has.load(std::memory_order_relaxed) & bit;
}

}  // namespace lowbit::cuda
