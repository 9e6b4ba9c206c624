// The codes of one atom of a GGML type in the `tiles` layout (core/packed.hpp), as a lane of a warp holds them: the words of its planes.
#pragma once
#include "core/tile_layout.hpp"
#include "cuda/ptx/shared_memory.cuh"

namespace lowbit::cuda {

template <int Bits>
struct AtomCodes {
    static constexpr int low = core::low_bits(Bits), high = core::high_bits(Bits);
    uint32_t low_words[low], high_words[high ? high : 1];

    // `atom`: its address in shared memory.
    __device__ void load(uint32_t atom, int lane) {
        load_plane(atom, lane, low_words);
        if constexpr (high > 0) load_plane(atom + core::tile_atom_bytes(low), lane, high_words);
    }
    // The codes of a slot (core/tile_layout.hpp) whose first one stands in byte `byte` of the words: in the last bits of each field of
    // `spread`, whose bits are the first of every field; or-ed onto `onto`.
    __device__ uint32_t fields(int slot, int byte, uint32_t spread, uint32_t onto) const {
        uint32_t found = ptx::mask_or(moved(low_words[slot * low / 8], 8 * byte + slot * low % 8), spread * ((1u << low) - 1), onto);
        if constexpr (high > 0)
            found = ptx::mask_or(moved(high_words[slot * high / 8], 8 * byte + slot * high % 8 - low), spread * (((1u << high) - 1) << low),
                                 found);
        return found;
    }

private:
    template <int PlaneBits>
    __device__ static void load_plane(uint32_t plane, int lane, uint32_t (&words)[PlaneBits]) {
        if constexpr (PlaneBits == 1) {
            words[0] = ptx::load_4(plane + lane * 4);
        } else if constexpr (PlaneBits == 2) {
            const uint2 two = ptx::load_8(plane + lane * 8);
            words[0] = two.x, words[1] = two.y;
        } else {
#pragma unroll
            for (int i = 0; i < PlaneBits; i += 4) {
                const uint4 four = ptx::load_16(plane + core::tile_word_byte(PlaneBits, lane, i));
                words[i] = four.x, words[i + 1] = four.y, words[i + 2] = four.z, words[i + 3] = four.w;
            }
        }
    }
    __device__ static uint32_t moved(uint32_t word, int right) { return right < 0 ? word << -right : word >> right; }
};

}  // namespace lowbit::cuda
