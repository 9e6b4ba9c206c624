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
//     weight [complement or not][tap, piece][output] of 16 bytes, once per block; cells [complement or not][phase][piece][position + span]
//     D[64 positions x outputs] = sum over steps of cells * weight: a step has 128 bits and their complement, or two folded cells
#pragma once
#include "cuda/convolve/engines.cuh"
#include "cuda/ptx/tensor_copy.cuh"

namespace lowbit::cuda {

template <class Engine, int Outputs, ConvBits Bits>
class TensorConv {
    const TensorConvArgs& args;
    uint8_t* const memory;
    const int group, first_output, threads;
    const int my_cell, my_piece;  // the first that this thread brings; threads beyond all pieces of the last pixel bring none
    uint8_t* const y;             // of the first output
    static constexpr int plane_bytes = (Outputs + 1) * conv_cell_bytes;  // of the weight; one more, for the banks

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
        if (args.result.element == Element::fp16) scale.x = Conversion<Element::fp16>::scale(scale.x);
        if (int(threadIdx.x) < Outputs) at<float2>(args.at.scales)[threadIdx.x] = scale;
    }

    // Neighbouring threads have neighbouring pieces; a thread asks for several at a time.
    __device__ void load_weight() const {
        const int count = args.down.kernel * args.across.kernel * args.pieces;  // of an output; there may be one slot more
        const int outputs = args.outputs - first_output < Outputs ? args.outputs - first_output : Outputs;
        const uint8_t* rows = args.weight + (int64_t(group) * args.outputs + first_output) * args.weight_row_bytes;
        const auto slot_bytes = [&](int slot) {  // from the first byte of an output on
            if constexpr (Bits == ConvBits::cells) return slot * conv_cell_bytes;
            if constexpr (Bits == ConvBits::folded) return args.folded_taps[slot] * (conv_cell_bytes / 2);
            const int tap = args.folded ? args.folded_taps[slot] : args.by_pieces.quotient(slot);
            return tap * args.group_bytes + (args.folded ? 0 : slot - tap * args.pieces) * conv_cell_bytes;
        };
        constexpr int at_once = 8;
#pragma unroll 1
        for (int first = threadIdx.x; first < Outputs * args.slots; first += at_once * threads) {
            uint4 values[at_once];
#pragma unroll
            for (int i = 0; i < at_once; ++i) {
                const int item = first + i * threads, output = args.by_slots.quotient(item), slot = item - output * args.slots;
                // What is not there is read at another place, and written as zeros.
                const bool there = output < outputs && slot < count;
                values[i] = read_piece(rows + (there ? output * args.weight_row_bytes + slot_bytes(slot) : 0),
                                       Bits == ConvBits::any && !args.folded && there ? slot % args.pieces : 0);
            }
#pragma unroll
            for (int i = 0; i < at_once; ++i) {
                const int item = first + i * threads, output = args.by_slots.quotient(item), slot = item - output * args.slots;
                uint8_t* to = memory + args.at.weight + slot * plane_bytes + output * conv_cell_bytes;
                if (output < Outputs) write_piece(to, args.steps * plane_bytes, values[i], output < outputs && slot < count);
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
        const Element type = args.result.element;
        const float term = type == Element::fp16 ? Conversion<Element::fp16>::term(bits) : Conversion<Element::fp32>::term(bits);
        at<uint32_t>(args.at.terms)[index] = type == Element::int32 ? uint32_t(bits) : __float_as_uint(term);
    }

    __device__ void load_cell(uint8_t* to, const uint8_t* from, bool there) const {
        if constexpr (Bits == ConvBits::cells)
            ptx::copy_16(to, from, there);
        else if constexpr (Bits == ConvBits::folded)
            ptx::copy_8(to, from, there);
        else
            write_piece(to, args.complement_bytes, there ? read_piece(from, my_piece) : make_uint4(0, 0, 0, 0), there);
    }

    // A thread asks for some cells, all for the same piece of their pixels, and makes their complements when they have come: a bit of the
    // result for each that is not padding, in the order of asking. The position that a cell belongs to is noted on the way. which: of the
    // two buffers.
    __device__ uint32_t load_cells(int tile, int which) const {
        const uint8_t* x = args.x + group * args.group_bytes + my_piece * conv_cell_bytes;
        uint8_t* cells = memory + args.at.cells + which * args.buffer_bytes + my_piece * args.plane_bytes;
        const int positions = tile_positions(), first = tile * positions;
        uint32_t inside = 0, bit = 1;
#pragma unroll 1
        for (int cell = my_cell; cell < args.tile_cells; cell += args.pass_cells) {
            const Place place = place_of(first + cell);
            const int top = place.row * args.down.stride - args.down.before, left = place.column * args.across.stride - args.across.before;
            const uint8_t* from = x + int64_t((place.image * args.down.size + top) * args.across.size + left) * args.pixel_bytes;
            const auto is_there = [&](int row, int column) {
                return place.image < args.images && uint32_t(row) < uint32_t(args.down.size) &&
                       uint32_t(column) < uint32_t(args.across.size);
            };
            if (args.phases == 1) {
                const bool there = is_there(top, left);
                load_cell(cells + cell * conv_cell_bytes, from, there);
                inside |= there ? bit : 0;
                bit <<= 1;
            } else {
                uint8_t* to = cells + cell * conv_cell_bytes;
                const int next_line = (args.across.size - args.across.stride) * args.pixel_bytes;
#pragma unroll 1
                for (int row = top; row < top + args.down.stride; ++row, from += next_line)
#pragma unroll 1
                    for (int column = left; column < left + args.across.stride; ++column, from += args.pixel_bytes) {
                        const bool there = is_there(row, column);
                        load_cell(to, from, there);
                        inside |= there ? bit : 0;
                        bit <<= 1;
                        to += args.pieces * args.plane_bytes;
                    }
            }
            if (my_piece == 0 && cell < positions) note_place(place, which * positions + cell);
        }
        if constexpr (Bits != ConvBits::any) ptx::commit_copies();
        return inside;
    }
    __device__ void complement_cells(int which, uint32_t inside) const {
        if constexpr (Bits == ConvBits::any) return;
        uint8_t* cells = memory + args.at.cells + which * args.buffer_bytes + my_piece * args.plane_bytes;
#pragma unroll 1
        for (int cell = my_cell; cell < args.tile_cells; cell += args.pass_cells) {
            uint8_t* bits = cells + cell * conv_cell_bytes;
#pragma unroll 1
            for (int phase = 0; phase < args.phases; ++phase, inside >>= 1, bits += args.pieces * args.plane_bytes) {
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

    // Half of 16 positions and two outputs: counts become results.
    template <Element Type, bool Biased>
    __device__ static auto finish_pair(const int* counts, uint32_t term, const float4& by) {
        if constexpr (Type == Element::int32) {
            return make_int2(2 * counts[0] - int(term), 2 * counts[1] - int(term));
        } else {
            const float low = Conversion<Type>::template finish<Biased>(counts[0], term, by.x, by.y);
            const float high = Conversion<Type>::template finish<Biased>(counts[1], term, by.z, by.w);
            if constexpr (Type == Element::fp32)
                return make_float2(low, high);
            else
                return stored_pair<Type>(low, high);
        }
    }

    // 128 bytes of outputs of a warp's 16 positions at a time, through shared memory. first: of all places.
    template <Element Type, bool Biased>
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
                const auto pair = [&](int i, int half) {
                    return finish_pair<Type, Biased>(sums + (pass * per_pass / 8 + i) * 4 + half * 2, terms[half], finish[i - i0]);
                };
#pragma unroll
                for (int i = i0; i < i0 + at_once; i += 2) {
                    if constexpr (Engine::stores_matrices && size == 2) {
                        const uint32_t four[4] = {pair(i, 0), pair(i, 1), pair(i + 1, 0), pair(i + 1, 1)};
                        ptx::store_matrices(ptx::shared_address(staging + lane % 16 * conv_staging_bytes + (8 * i + lane / 16 * 8) * size),
                                            four);
                    } else {
#pragma unroll
                        for (int j = 0; j < 4; ++j) {
                            uint8_t* to = staging + (lane / 4 + j % 2 * 8) * conv_staging_bytes + (8 * (i + j / 2) + lane % 4 * 2) * size;
                            const auto two = pair(i + j / 2, j % 2);
                            *reinterpret_cast<std::remove_const_t<decltype(two)>*>(to) = two;
                        }
                    }
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
          my_cell(args.by_pieces.quotient(int(threadIdx.x)) < args.pass_cells ? args.by_pieces.quotient(int(threadIdx.x))
                                                                              : args.tile_cells),
          my_piece(int(threadIdx.x) - args.by_pieces.quotient(int(threadIdx.x)) * args.pieces),
          y(static_cast<uint8_t*>(args.result.y) +
            (int64_t(group) * args.outputs + first_output) * args.result.strides[1] * args.result.bytes()) {}

    __device__ void run() {
        // Everything is asked for before the first of it is used.
        const float2 scale = load_scale();
        uint32_t inside = load_cells(int(blockIdx.x), 0);
        load_weight();
        keep_scale(scale);
        const int warpgroup = __shfl_sync(~0u, int(threadIdx.x) / 128, 0), warp = threadIdx.x / 32 % 4;
        const bool biased = args.result.bias;
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
                Engine::template start<Outputs>(args, memory, cells + first_position * conv_cell_bytes, sums, [&] {
                    if (block == 0 && next < args.tiles) inside = load_cells(next, now ^ 1);
                });
                Engine::finish(sums);
                const int first = now * tile_positions() + first_position + warp * 16;
                switch (args.result.element) {
                case Element::fp16: biased ? store<Element::fp16, true>(sums, first) : store<Element::fp16, false>(sums, first); break;
                case Element::bf16: biased ? store<Element::bf16, true>(sums, first) : store<Element::bf16, false>(sums, first); break;
                case Element::int32: store<Element::int32, false>(sums, first); break;
                default: store<Element::fp32, true>(sums, first); break;
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
