// The two ways in which tensor cores count bits for tensor_conv.cuh.
#pragma once
#include "cuda/convolve/args.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace lowbit::cuda {

// How tensor cores are asked for the bits that 64 positions (16 of each warp) and the weight have in common.
// `meanwhile` runs once there is enough to do.
struct ConvWgmma {
    static constexpr bool stores_matrices = true;
    static constexpr int most_outputs = 128;  // of a tile
    template <int Outputs, class Meanwhile>
    __device__ static void start(const TensorConvArgs& args, const uint8_t* memory, const uint8_t* first_cell, int (&sums)[Outputs / 2],
                                 Meanwhile meanwhile) {
        // The numbers of a step are added to the lower words of descriptors alone.
        const uint64_t cells = ptx::wgmma_cells(ptx::shared_address(first_cell) >> 4, 0);
        constexpr int plane = Outputs + 1;
        const int next = (args.folded ? 2 : 1) * plane, second = args.folded ? plane : args.steps * plane;
        const uint64_t weight = ptx::wgmma_cells(ptx::shared_address(memory + args.at.weight) >> 4, uint32_t(second));
        const auto multiply = [&](int first, int end) {
#pragma unroll 2
            for (int step = first; step < end; ++step)
                ptx::Wgmma<ptx::WgmmaInt1, Outputs>::shared(sums, (cells & ~0xffffffffull) | (uint32_t(cells) + args.step_cells[step]),
                                                            (weight & ~0xffffffffull) | (uint32_t(weight) + uint32_t(step * next)),
                                                            step > 0);
        };
        // More would wait for the tensor core before they are taken.
        const int enough = args.steps < 8 ? args.steps : 8;
        ptx::wgmma_fence();
        multiply(0, enough);
        meanwhile();
        multiply(enough, args.steps);
        ptx::wgmma_commit();
    }
    template <int Count>
    __device__ static void finish(int (&sums)[Count]) {
        ptx::wgmma_wait<0>();
#pragma unroll
        for (int i = 0; i < Count; ++i) ptx::own(sums[i]);
    }
};

struct ConvMma {
    static constexpr bool stores_matrices = false;
    static constexpr int most_outputs = 64;  // compiled for several chips: fewer kernels for each
    template <int Outputs, class Meanwhile>
    __device__ static void start(const TensorConvArgs& args, const uint8_t* memory, const uint8_t* first_cell, int (&sums)[Outputs / 2],
                                 Meanwhile meanwhile) {
        meanwhile();
        const int lane = threadIdx.x % 32, matrix = lane / 8, warp = threadIdx.x / 32 % 4;
        constexpr int plane = (Outputs + 1) * conv_cell_bytes;
        const int next = (args.folded ? 2 : 1) * plane, second = args.folded ? plane : args.steps * plane;
        // Matrices: rows 0 .. 7 and 8 .. 15 of the first cells, then of the second; of the weight both cells of eight outputs, of the next.
        const uint32_t cells = ptx::shared_address(first_cell) + uint32_t(warp * 16 + matrix % 2 * 8 + lane % 8) * conv_cell_bytes;
        const uint32_t weight = ptx::shared_address(memory + args.at.weight) + uint32_t(matrix % 2 * second) +
                                uint32_t(matrix / 2 * 8 + lane % 8) * conv_cell_bytes;
#pragma unroll
        for (int i = 0; i < Outputs / 2; ++i) sums[i] = -args.steps * ptx::MmaCommonBits::surplus;
#pragma unroll 1
        for (int step = 0; step < args.steps; ++step) {
            const uint32_t where = (args.step_cells[step] & 0xffffu) + uint32_t(matrix / 2) * (args.step_cells[step] >> 16);
            uint32_t a[4];
            ptx::load_matrices(a, cells + where * conv_cell_bytes);
#pragma unroll
            for (int column = 0; column < Outputs / 8; column += 2) {
                uint32_t b[4];
                ptx::load_matrices(b, weight + uint32_t(step * next + column * 8 * conv_cell_bytes));
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const uint32_t both[2] = {b[2 * half], b[2 * half + 1]};
                    ptx::MmaCommonBits::multiply(reinterpret_cast<int(&)[4]>(sums[(column + half) * 4]), a, both);
                }
            }
        }
    }
    template <int Count>
    __device__ static void finish(int (&sums)[Count]) {
        if constexpr (ptx::MmaCommonBits::twice == 2)
#pragma unroll
            for (int i = 0; i < Count; ++i) sums[i] /= 2;
    }
};

}  // namespace lowbit::cuda
