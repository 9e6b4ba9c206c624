// Convolutions of signs on tensor cores, without copies of patches.
//
// Tensor cores count the places where both sides have a 1. Beside the bits of a pixel and of a tap stands their complement, so that the
// count is that of the places where both are the same, and a result is 2 * count - bits. A pixel of the padding has zeros in both, and adds
// nothing.
//
// A pixel lies in shared memory in cells of 16 bytes: 128 channels or their complement, or, where a group has at most 64, both. Cells of
// neighbouring pixels are neighbours, one row of the padded image after the other, one image after the other. So eight neighbouring
// positions of the result and one tap of the weight are eight cells in a row, which is what tensor cores read as eight rows of 16 bytes,
// and the next tap is the same at another address:
//
//     position p = (image * image_rows + row) * row_cells + column      results exist where row and column are inside of the result
//     the tap (i, j) of it reads cell p + i * row_cells + j             (with strides: of the plane of pixels of one phase)
//
// A row ends with cells of padding that begin the next one, too, where both have some. A tile is a run of positions, by 32 to 128 outputs:
//
//     weight [chunk][output] of 16 bytes, once per block; cells [phase][piece][position + span], per tile
//     D[64 positions x outputs] = sum over chunks of cells * weight, of which two make a step of 256 bits
#pragma once
#include "cuda/convolve/args.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/tensor_copy.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace lowbit::cuda {

// How tensor cores are asked for the bits that 64 positions (16 of each warp) and the weight have in common.
struct ConvWgmma {
    template <int Outputs>
    __device__ static void start(const TensorConvArgs& args, const uint8_t* memory, const uint8_t* first_cell, int (&sums)[Outputs / 2]) {
        // Both numbers of a step are added to the lower words of descriptors alone.
        const uint64_t cells = ptx::wgmma_cells(ptx::shared_address(first_cell) >> 4, 0);
        constexpr int plane = Outputs + 1;
        const uint64_t weight = ptx::wgmma_cells(ptx::shared_address(memory + args.at.weight) >> 4, plane);
        ptx::wgmma_fence();
#pragma unroll 2
        for (int step = 0; step < args.steps; ++step)
            ptx::Wgmma<ptx::WgmmaInt1, Outputs>::shared(sums, (cells & ~0xffffffffull) | (uint32_t(cells) + args.step_cells[step]),
                                                        (weight & ~0xffffffffull) | (uint32_t(weight) + uint32_t(step * 2 * plane)),
                                                        step > 0);
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
    template <int Outputs>
    __device__ static void start(const TensorConvArgs& args, const uint8_t* memory, const uint8_t* first_cell, int (&sums)[Outputs / 2]) {
        const int lane = threadIdx.x % 32, matrix = lane / 8, warp = threadIdx.x / 32 % 4;
        constexpr int plane = (Outputs + 1) * conv_cell_bytes;
        // Matrices: rows 0 .. 7 and 8 .. 15 of the first chunk, then of the second; of the weight both chunks of eight outputs, of the
        // next.
        const uint32_t cells = ptx::shared_address(first_cell) + uint32_t(warp * 16 + matrix % 2 * 8 + lane % 8) * conv_cell_bytes;
        const uint32_t weight = ptx::shared_address(memory + args.at.weight) + uint32_t(matrix % 2 * plane) +
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
                ptx::load_matrices(b, weight + uint32_t(step * 2 * plane + column * 8 * conv_cell_bytes));
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

template <class Engine, int Outputs, ConvBits Bits>
class TensorConv {
    const TensorConvArgs& args;
    uint8_t* const memory;
    const int group, first_output, threads;
    uint8_t* const y;                                                    // of the first output
    static constexpr int plane_bytes = (Outputs + 1) * conv_cell_bytes;  // of the weight; one more, for the banks
    // The bits of 2^23 + 2^22 plus an integer of less than 22 bits are those of their sum as a number of fp32: cheaper than a conversion.
    // It comes off again together with what is known of a position.
    static constexpr int number_bits = 0x4b400000;
    static constexpr float number_base = 12582912.0f;

    template <class T>
    __device__ T* at(int offset) const {
        return reinterpret_cast<T*>(memory + offset);
    }
    __device__ int tile_positions() const { return args.blocks * args.groups * 64; }

    // Up to 16 bytes, and zeros behind them.
    __device__ static uint4 load_bytes(const uint8_t* from, int bytes, int unit) {
        uint32_t words[4] = {};
        if (unit >= 8) {
#pragma unroll
            for (int i = 0; i < 2; ++i)
                if (8 * i < bytes) {
                    const uint2 two = reinterpret_cast<const uint2*>(from)[i];
                    words[2 * i] = two.x, words[2 * i + 1] = two.y;
                }
        } else if (unit == 4) {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if (4 * i < bytes) words[i] = reinterpret_cast<const uint32_t*>(from)[i];
        } else {
#pragma unroll
            for (int i = 0; i < 16; ++i)
                if (i < bytes) words[i / 4] |= uint32_t(from[i]) << 8 * (i % 4);
        }
        return make_uint4(words[0], words[1], words[2], words[3]);
    }
    __device__ bool folded() const { return Bits == ConvBits::any ? args.folded : Bits == ConvBits::folded; }

    // A piece of the bits of a pixel or a tap; of a folded cell the first half counts.
    __device__ uint4 read_piece(const uint8_t* from, int piece) const {
        if constexpr (Bits == ConvBits::cells) return *reinterpret_cast<const uint4*>(from);
        if constexpr (Bits == ConvBits::folded) {
            const uint2 half = *reinterpret_cast<const uint2*>(from);
            return make_uint4(half.x, half.y, 0, 0);
        }
        const int left = args.group_bytes - piece * conv_cell_bytes;
        return load_bytes(from, left < conv_cell_bytes ? left : conv_cell_bytes, args.unit);
    }
    // With its complement, or zeros for both.
    __device__ void write_piece(uint8_t* to, int distance, uint4 value, bool there) const {
        const uint32_t mask = there ? ~0u : 0u;
        if (folded()) {
            *reinterpret_cast<uint4*>(to) = make_uint4(value.x & mask, value.y & mask, ~value.x & mask, ~value.y & mask);
        } else {
            *reinterpret_cast<uint4*>(to) = make_uint4(value.x & mask, value.y & mask, value.z & mask, value.w & mask);
            *reinterpret_cast<uint4*>(to + distance) = make_uint4(~value.x & mask, ~value.y & mask, ~value.z & mask, ~value.w & mask);
        }
    }

    // ---- once per block ----

    // Of one output for each thread, while there are any.
    __device__ float2 load_scale() const {
        const int output = first_output + int(threadIdx.x);
        return args.result.finish_of(int64_t(group) * args.outputs + (output < args.outputs ? output : 0));
    }
    __device__ void keep_scale(float2 scale) const {
        if (int(threadIdx.x) < Outputs) at<float2>(args.at.scales)[threadIdx.x] = scale;
    }

    // Neighbouring threads have neighbouring pieces of an output, and each some outputs, of which a few are asked for at a time.
    __device__ void load_weight() const {
        const int count = args.down.kernel * args.across.kernel * args.pieces;
        const int slots = folded() ? 2 * args.steps : count;  // a step takes two taps then, and the last may have but one
        const int shift = slots <= 8 ? 3 : slots <= 16 ? 4 : 5, first = int(threadIdx.x) >> shift, every = threads >> shift;
        const uint8_t* rows = args.weight + (int64_t(group) * args.outputs + first_output) * args.weight_row_bytes;
#pragma unroll 1
        for (int slot = int(threadIdx.x) & ((1 << shift) - 1); slot < slots; slot += 1 << shift) {
            const int tap = !folded() ? args.by_pieces.quotient(slot) : slot < count ? args.folded_taps[slot] : 0;
            const int piece = folded() ? 0 : slot - tap * args.pieces;
            uint8_t* to = memory + args.at.weight + (folded() ? slot : 2 * slot) * plane_bytes;
            const uint8_t* from = rows + tap * args.group_bytes + piece * conv_cell_bytes;
            constexpr int at_once = 4;
#pragma unroll 1
            for (int output = first; output < Outputs; output += at_once * every) {
                uint4 values[at_once];
#pragma unroll
                for (int i = 0; i < at_once; ++i) {
                    const int other = output + i * every;
                    values[i] = make_uint4(0, 0, 0, 0);
                    if (slot < count && other < Outputs && first_output + other < args.outputs)
                        values[i] = read_piece(from + int64_t(other) * args.weight_row_bytes, piece);
                }
#pragma unroll
                for (int i = 0; i < at_once; ++i) {
                    const int other = output + i * every;
                    if (other < Outputs) write_piece(to + other * conv_cell_bytes, plane_bytes, values[i], slot < count);
                }
            }
        }
    }

    // ---- once per tile ----

    struct Place {
        int image, row, column;
    };
    __device__ Place place_of(int position) const {
        const int row = args.by_row_cells.quotient(position), image = args.by_image_rows.quotient(row);
        return {image, row - image * args.image_rows, position - row * args.row_cells};
    }

    // Where the results of a position are stored, in bytes, and what comes off their sums.
    __device__ void note_place(Place place, int index) const {
        const bool there = place.image < args.images && place.row < args.down.positions && place.column < args.across.positions;
        const int64_t offset =
            there ? int64_t(place.image) * args.image_bytes + (place.row * args.line_bytes + place.column * args.position_bytes) : -1;
        const int bits = args.tap_bits * (args.down.taps_inside(place.row) * args.across.taps_inside(place.column));
        at<int64_t>(args.at.places)[index] = offset;
        const bool is_integer = args.result.element == Element::int32;
        at<uint32_t>(args.at.terms)[index] = is_integer ? uint32_t(bits) : __float_as_uint(number_base + float(bits));
    }

    // A thread asks for some cells, and makes their complements when they have come: a bit of the result for each that is not padding, in
    // the order of asking. The position that a cell belongs to is noted on the way. which: of the two buffers.
    __device__ uint32_t load_cells(int tile, int which) const {
        const uint8_t* x = args.x + group * args.group_bytes;
        uint8_t* cells = memory + args.at.cells + which * args.buffer_bytes;
        const int positions = tile_positions(), first = tile * positions;
        uint32_t inside = 0, bit = 1;
#pragma unroll 1
        for (int i = threadIdx.x; i < args.tile_cells * args.pieces; i += threads) {
            const int cell = args.by_pieces.quotient(i), piece = i - cell * args.pieces;
            const Place place = place_of(first + cell);
            uint8_t* to = cells + piece * args.plane_bytes + cell * conv_cell_bytes;
            const int top = place.row * args.down.stride - args.down.before, left = place.column * args.across.stride - args.across.before;
            const uint8_t* from =
                x + int64_t((place.image * args.down.size + top) * args.across.size + left) * args.pixel_bytes + piece * conv_cell_bytes;
            const int next_line = (args.across.size - args.across.stride) * args.pixel_bytes;
#pragma unroll 1
            for (int row = top; row < top + args.down.stride; ++row, from += next_line)
#pragma unroll 1
                for (int column = left; column < left + args.across.stride; ++column, from += args.pixel_bytes) {
                    const bool there = place.image < args.images && uint32_t(row) < uint32_t(args.down.size) &&
                                       uint32_t(column) < uint32_t(args.across.size);
                    if constexpr (Bits == ConvBits::cells)
                        ptx::copy_16(to, from, there);
                    else if constexpr (Bits == ConvBits::folded)
                        ptx::copy_8(to, from, there);
                    else
                        write_piece(to, args.complement_bytes, there ? read_piece(from, piece) : make_uint4(0, 0, 0, 0), there);
                    if (there) inside |= bit;
                    bit <<= 1;
                    to += args.pieces * args.plane_bytes;
                }
            if (piece == 0 && cell < positions) note_place(place, which * positions + cell);
        }
        if constexpr (Bits != ConvBits::any) ptx::commit_copies();
        return inside;
    }
    __device__ void complement_cells(int which, uint32_t inside) const {
        if constexpr (Bits == ConvBits::any) return;
        uint8_t* cells = memory + args.at.cells + which * args.buffer_bytes;
        const int phases = args.down.stride * args.across.stride;
#pragma unroll 1
        for (int i = threadIdx.x; i < args.tile_cells * args.pieces; i += threads) {
            const int cell = args.by_pieces.quotient(i), piece = i - cell * args.pieces;
            uint8_t* bits = cells + piece * args.plane_bytes + cell * conv_cell_bytes;
#pragma unroll 1
            for (int phase = 0; phase < phases; ++phase, inside >>= 1, bits += args.pieces * args.plane_bytes) {
                const uint32_t mask = inside & 1 ? ~0u : 0u;
                if constexpr (Bits == ConvBits::folded) {
                    const uint2 two = *reinterpret_cast<const uint2*>(bits);
                    reinterpret_cast<uint2*>(bits)[1] = make_uint2(~two.x & mask, ~two.y & mask);
                } else {
                    const uint4 four = *reinterpret_cast<const uint4*>(bits);
                    *reinterpret_cast<uint4*>(bits + args.complement_bytes) =
                        make_uint4(~four.x & mask, ~four.y & mask, ~four.z & mask, ~four.w & mask);
                }
            }
        }
    }

    // 128 bytes of outputs of a warp's 16 positions at a time, through shared memory. first: of all places.
    template <Element Type>
    __device__ void store(int (&sums)[Outputs / 2], int first) const {
        using Stored = std::conditional_t<Type == Element::fp16 || Type == Element::bf16, uint16_t, uint32_t>;
        constexpr int size = int(sizeof(Stored)), per_pass = 128 / size < Outputs ? 128 / size : Outputs;
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        uint8_t* staging = memory + args.at.staging + warp * 16 * conv_staging_bytes;
        const auto* places = at<int64_t>(args.at.places) + first;
        const uint32_t terms[2] = {at<uint32_t>(args.at.terms)[first + lane / 4], at<uint32_t>(args.at.terms)[first + lane / 4 + 8]};
#pragma unroll
        for (int pass = 0; pass < Outputs / per_pass; ++pass) {
            if (pass > 0 && first_output + pass * per_pass >= args.outputs) break;
            constexpr int at_once = 4;  // scales of so many columns are asked for together
#pragma unroll
            for (int i0 = 0; i0 < per_pass / 8; i0 += at_once) {
                float4 finish[at_once];
#pragma unroll
                for (int i = 0; i < at_once; ++i)
                    finish[i] =
                        *reinterpret_cast<const float4*>(at<float2>(args.at.scales) + pass * per_pass + 8 * (i0 + i) + lane % 4 * 2);
#pragma unroll
                for (int i = i0; i < i0 + at_once; ++i)
#pragma unroll
                    for (int half = 0; half < 2; ++half) {
                        const int* two = sums + (pass * per_pass / 8 + i) * 4 + half * 2;
                        uint8_t* to = staging + (lane / 4 + half * 8) * conv_staging_bytes + (8 * i + lane % 4 * 2) * size;
                        if constexpr (Type == Element::int32) {
                            *reinterpret_cast<int2*>(to) = make_int2(2 * two[0] - int(terms[half]), 2 * two[1] - int(terms[half]));
                            continue;
                        }
                        const float base = __uint_as_float(terms[half]);
                        const float4& by = finish[i - i0];
                        const float low = finished(__int_as_float(2 * two[0] + number_bits) - base, make_float2(by.x, by.y));
                        const float high = finished(__int_as_float(2 * two[1] + number_bits) - base, make_float2(by.z, by.w));
                        if constexpr (size == 2)
                            *reinterpret_cast<uint32_t*>(to) = stored_pair<Type>(low, high);
                        else
                            *reinterpret_cast<float2*>(to) = make_float2(low, high);
                    }
            }
            __syncwarp();
            const int left = args.outputs - first_output - pass * per_pass, count = left < per_pass ? left : per_pass;
            if (args.stores_runs) {
                constexpr int runs = per_pass * size / 16, rows = 32 / runs;  // runs: of a position
#pragma unroll
                for (int i = 0; i < 16 / rows; ++i) {
                    const int row = i * rows + lane / runs, column = lane % runs * 16;
                    const int64_t place = places[row];
                    if (place >= 0 && column < count * size)
                        *reinterpret_cast<uint4*>(y + place + pass * 128 + column) =
                            *reinterpret_cast<const uint4*>(staging + row * conv_staging_bytes + column);
                }
            } else {
                const int64_t stride = args.result.strides[1];
                for (int i = lane; i < 16 * per_pass; i += 32) {
                    const int row = stride == 1 ? i / per_pass : i % 16, column = stride == 1 ? i % per_pass : i / 16;
                    if (places[row] >= 0 && column < count)
                        *reinterpret_cast<Stored*>(y + places[row] + (pass * per_pass + column) * stride * size) =
                            *reinterpret_cast<const Stored*>(staging + row * conv_staging_bytes + column * size);
                }
            }
            __syncwarp();
        }
    }

public:
    __device__ TensorConv(const TensorConvArgs& given, uint8_t* shared)
        : args(given),
          memory(shared),
          group(int(blockIdx.z)),
          first_output(int(blockIdx.y) * Outputs),
          threads(args.groups * 128),
          y(static_cast<uint8_t*>(args.result.y) +
            (int64_t(group) * args.outputs + first_output) * args.result.strides[1] * args.result.bytes()) {}

    __device__ void run() {
        // Everything is asked for before the first of it is used.
        const float2 scale = load_scale();
        uint32_t inside = load_cells(int(blockIdx.x), 0);
        load_weight();
        keep_scale(scale);
        const int warpgroup = __shfl_sync(~0u, int(threadIdx.x) / 128, 0), warp = threadIdx.x / 32 % 4;
        for (int tile = int(blockIdx.x), now = 0; tile < args.tiles; tile += int(gridDim.x), now ^= 1) {
            ptx::wait_for_copies<0>();
            complement_cells(now, inside);
            ptx::show_to_copy_engine();
            __syncthreads();  // the cells are there, and all have done with those of the tile before
            const uint8_t* cells = memory + args.at.cells + now * args.buffer_bytes;
            const int next = tile + int(gridDim.x);
            for (int block = 0; block < args.blocks; ++block) {
                const int first_position = (block * args.groups + warpgroup) * 64;
                int sums[Outputs / 2];
                Engine::template start<Outputs>(args, memory, cells + first_position * conv_cell_bytes, sums);
                if (block == 0 && next < args.tiles) inside = load_cells(next, now ^ 1);  // while the tensor core works
                Engine::finish(sums);
                const int first = now * tile_positions() + first_position + warp * 16;
                switch (args.result.element) {
                case Element::fp16: store<Element::fp16>(sums, first); break;
                case Element::bf16: store<Element::bf16>(sums, first); break;
                case Element::int32: store<Element::int32>(sums, first); break;
                default: store<Element::fp32>(sums, first); break;
                }
            }
        }
    }
};

template <class Engine, int Outputs, ConvBits Bits>
__global__ void __launch_bounds__(conv_most_groups(Outputs) * 128, 1) tensor_conv(const __grid_constant__ TensorConvArgs args) {
    extern __shared__ __align__(128) uint8_t conv_memory[];
    TensorConv<Engine, Outputs, Bits>(args, conv_memory).run();
}

}  // namespace lowbit::cuda
