// Convolutions of signs on tensor cores, without copies of patches.
//
// A pixel's bits lie in shared memory in cells of 16 bytes: 128 channels, or, where a group has at most 64, those of the pixel and of the
// one to its right. Cells of neighbouring pixels are neighbours, one row of the padded image after the other, one image after the other. So
// eight neighbouring positions of the result and one tap of the weight are eight cells in a row, which is what tensor cores read as eight
// rows of 16 bytes, and the next tap is the same at another address:
//
//     position p = (image * image_rows + row) * row_cells + column      results exist where row and column are inside of the result
//     the tap (i, j) of it reads cell p + i * row_cells + j             (with strides: of the plane of pixels of one phase)
//
// A row ends with cells of padding that begin the next one, too, where both have some. A tile is a run of positions, by 64 or 128 outputs:
//
//     weight [chunk][output] of 16 bytes, once per block; cells [phase][piece][position + span], per tile
//     D[64 positions x outputs] = sum over chunks of cells * weight, of which two make a step of 256 bits
//
// Padding is bits of 0 and takes part. What that does to a sum depends on which taps lie outside only: rows and columns of the result fall
// into few classes, and a table [class][output] has what must be added.
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
        const auto* steps = reinterpret_cast<const uint32_t*>(memory + args.at.steps);
        const uint64_t cells = ptx::wgmma_cells(ptx::shared_address(first_cell) >> 4, 0);
        constexpr int plane = Outputs + 1;
        const uint64_t weight = ptx::wgmma_cells(ptx::shared_address(memory + args.at.weight) >> 4, plane);
        ptx::wgmma_fence();
#pragma unroll 2
        for (int step = 0; step < args.steps; ++step) {
            ptx::Wgmma<ptx::WgmmaInt1, Outputs>::shared(sums, cells + steps[step], weight + uint64_t(step * 2 * plane), step > 0);
        }
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
        const auto* steps = reinterpret_cast<const uint32_t*>(memory + args.at.steps);
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
            const uint32_t where = (steps[step] & 0xffffu) + uint32_t(matrix / 2) * (steps[step] >> 16);
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

template <class Engine, int Outputs>
class TensorConv {
    const TensorConvArgs& args;
    uint8_t* const memory;
    const int group, first_output;
    static constexpr int plane_bytes = (Outputs + 1) * conv_cell_bytes;  // of the weight; one more, for the banks
    // The bits of 2^23 + 2^22 plus an integer of less than 22 bits are those of their sum as a number of fp32: cheaper than a conversion.
    // It comes off again together with what is known of a position.
    static constexpr int number_bits = 0x4b400000;
    static constexpr float number_base = 12582912.0f;
    const bool is_integer;

    template <class T>
    __device__ T* at(int offset) const {
        return reinterpret_cast<T*>(memory + offset);
    }
    __device__ int taps() const { return args.down.kernel * args.across.kernel; }
    __device__ int phases() const { return args.down.stride * args.across.stride; }
    __device__ int tile_positions() const { return args.blocks * conv_groups * 64; }

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

    // ---- once per block ----

    // A chunk's first cell from that of a position on.
    __device__ int chunk_cell(int chunk) const {
        const int piece = chunk % args.pieces, column = chunk / args.pieces % args.columns, row = chunk / (args.pieces * args.columns);
        const int tap = args.column_first[column];
        const int plane = (args.down.phase(row) * args.across.stride + args.across.phase(tap)) * args.pieces + piece;
        return plane * (args.plane_bytes / conv_cell_bytes) + args.down.shift(row) * args.row_cells + args.across.shift(tap);
    }
    // What a chunk has: a piece of the bits of a tap, and of a second one where cells have two pixels. No tap: -1.
    struct Chunk {
        int16_t first, second;
        int piece;
    };
    __device__ Chunk chunk_of(int chunk) const {
        if (chunk >= args.chunks) return {-1, -1, 0};
        const int piece = chunk % args.pieces, column = chunk / args.pieces % args.columns, row = chunk / (args.pieces * args.columns);
        const int first = row * args.across.kernel, second = args.column_second[column];
        return {int16_t(first + args.column_first[column]), int16_t(second < 0 ? -1 : first + second), piece};
    }
    __device__ void fill_tables() const {
        for (int step = threadIdx.x; step < args.steps; step += conv_threads) {
            const int even = 2 * step, odd = even + 1;
            const int a = chunk_cell(even), b = odd < args.chunks ? chunk_cell(odd) : a;
            const bool swap = b < a;  // the second chunk is the one further on
            at<uint32_t>(args.at.steps)[step] = uint32_t(swap ? b : a) | uint32_t(swap ? a - b : b - a) << 16;  // where, how far
            at<Chunk>(args.at.chunks)[even] = chunk_of(swap ? odd : even);
            at<Chunk>(args.at.chunks)[odd] = chunk_of(swap ? even : odd);
        }
        for (int tap = threadIdx.x; tap < taps(); tap += conv_threads) {
            const int row = tap / args.across.kernel, column = tap - row * args.across.kernel;
            at<int>(args.at.taps)[tap] = (args.down.phase(row) * args.across.stride + args.across.phase(column)) * args.tile_cells +
                                         args.down.shift(row) * args.row_cells + args.across.shift(column);
        }
        for (int i = threadIdx.x; i < Outputs; i += conv_threads) {
            const int output = first_output + i;
            at<float2>(args.at.scales)[i] = args.result.finish_of(int64_t(group) * args.outputs + (output < args.outputs ? output : 0));
        }
        for (int i = threadIdx.x; i < taps() * Outputs; i += conv_threads) at<int>(args.at.staging)[i] = 0;
        for (int i = threadIdx.x; i < args.down.positions + args.across.positions; i += conv_threads)
            at<uint8_t>(args.at.line_classes)[i] = uint8_t(i < args.down.positions ? args.down.class_of(i) * args.across.classes
                                                                                   : args.across.class_of(i - args.down.positions));
    }

    __device__ const uint8_t* weight_row(int output) const {
        return args.weight + (int64_t(group) * args.outputs + first_output + output) * args.weight_row_bytes;
    }
    __device__ void load_weight() const {
        // A warp takes an output at a time: its bytes are neighbours.
        const int lanes = 2 * args.steps <= 8 ? 8 : 2 * args.steps <= 16 ? 16 : 32, per_pass = conv_threads / lanes;
        for (int output = int(threadIdx.x) / lanes; output < Outputs; output += per_pass)
            for (int slot = int(threadIdx.x) % lanes; slot < 2 * args.steps; slot += lanes) {
                const Chunk chunk = at<Chunk>(args.at.chunks)[slot];
                const bool there = chunk.first >= 0 && first_output + output < args.outputs;
                uint8_t* to = memory + args.at.weight + slot * plane_bytes + output * conv_cell_bytes;
                const uint8_t *row = weight_row(output), *from = row + chunk.first * args.group_bytes + chunk.piece * conv_cell_bytes;
                if (args.unit == 16) {
                    ptx::copy_16(to, there ? from : args.weight, there);
                    continue;
                }
                uint4 value = make_uint4(0, 0, 0, 0);
                if (there) {
                    const int left = args.group_bytes - chunk.piece * conv_cell_bytes;
                    value = load_bytes(from, left < conv_cell_bytes ? left : conv_cell_bytes, args.unit);
                    if (chunk.second >= 0) {
                        const uint4 second = load_bytes(row + chunk.second * args.group_bytes, args.group_bytes, args.unit);
                        value.z = second.x, value.w = second.y;
                    }
                }
                *reinterpret_cast<uint4*>(to) = value;
            }
        ptx::commit_copies();
    }

    // The product of signs of n bits is n - 2 |x| - 2 |w| + 4 |x and w|. Outside of the image x has no bits, and n and |w| do not count:
    // what they are depends on the class.
    __device__ void fill_corrections() const {
        int* ones = at<int>(args.at.staging);  // [tap][output], before anything is stored
        for (int i = threadIdx.x; i < 2 * args.steps * Outputs; i += conv_threads) {
            const int slot = i / Outputs, output = i % Outputs;
            const Chunk chunk = at<Chunk>(args.at.chunks)[slot];
            const uint4 bits = *at<uint4>(args.at.weight + slot * plane_bytes + output * conv_cell_bytes);
            const int lower = __popc(bits.x) + __popc(bits.y), upper = __popc(bits.z) + __popc(bits.w);
            if (chunk.first >= 0) atomicAdd(ones + chunk.first * Outputs + output, args.paired ? lower : lower + upper);
            if (chunk.second >= 0) atomicAdd(ones + chunk.second * Outputs + output, upper);
        }
        __syncthreads();
        for (int i = threadIdx.x; i < args.down.classes * args.across.classes * Outputs; i += conv_threads) {
            const int output = i % Outputs, which = i / Outputs, row_class = which / args.across.classes;
            const int column_class = which - row_class * args.across.classes;
            const int first_row = args.down.first[row_class], end_row = args.down.end[row_class];
            const int first_column = args.across.first[column_class], end_column = args.across.end[column_class];
            int sum = args.channels * (end_row - first_row) * (end_column - first_column);
            for (int row = first_row; row < end_row; ++row)
                for (int column = first_column; column < end_column; ++column)
                    sum -= 2 * ones[(row * args.across.kernel + column) * Outputs + output];
            at<int>(args.at.corrections)[i] = sum + (is_integer ? 0 : number_bits);
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

    __device__ void load_cells(int first, uint8_t* cells) const {
        const uint8_t* x = args.x + group * args.group_bytes;
        for (int i = threadIdx.x; i < args.tile_cells * args.pieces; i += conv_threads) {
            const int cell = args.by_pieces.quotient(i), piece = i - cell * args.pieces;
            const Place place = place_of(first + cell);
            int plane = piece;
            for (int down = 0; down < args.down.stride; ++down)
                for (int across = 0; across < args.across.stride; ++across, plane += args.pieces) {
                    const int row = place.row * args.down.stride + down - args.down.before;
                    const int column = place.column * args.across.stride + across - args.across.before;
                    const bool row_there = place.image < args.images && row >= 0 && row < args.down.size;
                    const bool there = row_there && column >= 0 && column < args.across.size;
                    uint8_t* to = cells + plane * args.plane_bytes + cell * conv_cell_bytes;
                    const int64_t pixel = (int64_t(place.image) * args.down.size + row) * args.across.size + column;
                    const uint8_t* from = x + pixel * args.pixel_bytes + piece * conv_cell_bytes;
                    if (args.unit == 16) {
                        ptx::copy_16(to, there ? from : args.x, there);
                        continue;
                    }
                    const int right = column + args.across.stride;
                    const bool right_there =
                        args.paired && row_there && place.column + 1 < args.row_cells && right >= 0 && right < args.across.size;
                    const uint8_t* second = from + args.across.stride * args.pixel_bytes;
                    if (args.unit == 8 && args.paired) {
                        ptx::copy_8(to, there ? from : args.x, there);
                        ptx::copy_8(to + 8, right_there ? second : args.x, right_there);
                        continue;
                    }
                    uint4 value = make_uint4(0, 0, 0, 0);
                    const int left = args.group_bytes - piece * conv_cell_bytes;
                    if (there) value = load_bytes(from, left < conv_cell_bytes ? left : conv_cell_bytes, args.unit);
                    if (right_there) {
                        const uint4 two = load_bytes(second, left, args.unit);
                        value.z = two.x, value.w = two.y;
                    }
                    *reinterpret_cast<uint4*>(to) = value;
                }
        }
        ptx::commit_copies();
    }

    __device__ void count_bits(const uint8_t* cells) const {
        for (int cell = threadIdx.x; cell < args.tile_cells; cell += conv_threads)
            for (int phase = 0; phase < phases(); ++phase) {
                int count = 0;
                for (int piece = 0; piece < args.pieces; ++piece) {
                    const uint8_t* from = cells + (phase * args.pieces + piece) * args.plane_bytes + cell * conv_cell_bytes;
                    const uint4 bits = *reinterpret_cast<const uint4*>(from);
                    count += __popc(bits.x) + __popc(bits.y);
                    if (!args.paired) count += __popc(bits.z) + __popc(bits.w);
                }
                at<int>(args.at.counts)[phase * args.tile_cells + cell] = count;
            }
    }

    // Where results are stored, their class, and what is known about their sum.
    __device__ void fill_places(int first) const {
        for (int i = threadIdx.x; i < tile_positions(); i += conv_threads) {
            const Place place = place_of(first + i);
            const bool there = place.image < args.images && place.row < args.down.positions && place.column < args.across.positions;
            const int64_t* strides = args.result.strides;
            at<int64_t>(args.at.places)[i] = there ? place.image * strides[0] + int64_t(group) * args.outputs * strides[1] +
                                                         place.row * strides[2] + place.column * strides[3]
                                                   : -1;
            const auto* lines = at<uint8_t>(args.at.line_classes);
            at<int>(args.at.classes)[i] = there ? lines[place.row] + lines[args.down.positions + place.column] : 0;
        }
    }
    __device__ void fill_terms() const {
        for (int i = threadIdx.x; i < tile_positions(); i += conv_threads) {
            int count = 0;
            for (int tap = 0; tap < taps(); ++tap) count += at<int>(args.at.counts)[at<int>(args.at.taps)[tap] + i];
            if (is_integer)
                at<int>(args.at.terms)[i] = -2 * count;
            else
                at<float>(args.at.terms)[i] = number_base + float(2 * count);
        }
    }

    // 128 bytes of outputs of a warp's 16 positions at a time, through shared memory.
    template <Element Type>
    __device__ void store(int (&sums)[Outputs / 2], int first_position) const {
        using Stored = std::conditional_t<Type == Element::fp16 || Type == Element::bf16, uint16_t, uint32_t>;
        constexpr int per_pass = 128 / int(sizeof(Stored));
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        uint8_t* staging = memory + args.at.staging + warp * 16 * conv_staging_bytes;
        const auto* places = at<int64_t>(args.at.places) + first_position;
        uint32_t terms[2];
        const int* corrections[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int position = first_position + lane / 4 + half * 8;
            terms[half] = at<uint32_t>(args.at.terms)[position];
            corrections[half] = at<int>(args.at.corrections) + at<int>(args.at.classes)[position] * Outputs;
        }
#pragma unroll
        for (int pass = 0; pass < Outputs / per_pass; ++pass) {
            if (first_output + pass * per_pass >= args.outputs) break;
#pragma unroll
            for (int i = 0; i < per_pass / 8; ++i) {
                const int column = pass * per_pass + 8 * i + lane % 4 * 2;
                const float4 finish = *reinterpret_cast<const float4*>(at<float2>(args.at.scales) + column);
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const int2 known = *reinterpret_cast<const int2*>(corrections[half] + column);
                    const int* two = sums + (pass * per_pass / 8 + i) * 4 + half * 2;
                    const int a = 4 * two[0] + known.x, b = 4 * two[1] + known.y;
                    uint8_t* to = staging + (lane / 4 + half * 8) * conv_staging_bytes + (8 * i + lane % 4 * 2) * int(sizeof(Stored));
                    if constexpr (Type == Element::int32) {
                        *reinterpret_cast<int2*>(to) = make_int2(a + int(terms[half]), b + int(terms[half]));
                        continue;
                    }
                    const float base = __uint_as_float(terms[half]);
                    const float low = finished(__int_as_float(a) - base, make_float2(finish.x, finish.y));
                    const float high = finished(__int_as_float(b) - base, make_float2(finish.z, finish.w));
                    if constexpr (sizeof(Stored) == 2)
                        *reinterpret_cast<uint32_t*>(to) = stored_pair<Type>(low, high);
                    else
                        *reinterpret_cast<float2*>(to) = make_float2(low, high);
                }
            }
            __syncwarp();
            const int left = args.outputs - first_output - pass * per_pass, count = left < per_pass ? left : per_pass;
            auto* y = static_cast<Stored*>(args.result.y) + (first_output + pass * per_pass) * args.result.strides[1];
            if (args.stores_runs) {
                constexpr int per_run = 16 / int(sizeof(Stored));
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int row = i * 4 + lane / 8, column = lane % 8 * per_run;
                    if (places[row] >= 0 && column < count)
                        *reinterpret_cast<uint4*>(y + places[row] + column) =
                            *reinterpret_cast<const uint4*>(staging + row * conv_staging_bytes + lane % 8 * 16);
                }
            } else {
                const bool by_output = args.result.strides[1] == 1;
                for (int i = lane; i < 16 * per_pass; i += 32) {
                    const int row = by_output ? i / per_pass : i % 16, column = by_output ? i % per_pass : i / 16;
                    if (places[row] >= 0 && column < count)
                        y[places[row] + column * args.result.strides[1]] =
                            *reinterpret_cast<const Stored*>(staging + row * conv_staging_bytes + column * int(sizeof(Stored)));
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
          is_integer(given.result.element == Element::int32) {}

    __device__ void run() {
        const auto buffer = [&](int which) { return memory + args.at.cells + which * args.buffer_bytes; };
        // Everything is asked for before the first of it is used.
        load_cells(int(blockIdx.x) * tile_positions(), buffer(0));
        fill_tables();
        __syncthreads();
        load_weight();
        const int warpgroup = threadIdx.x / 128, warp = threadIdx.x / 32 % 4;
        bool is_first = true;
        for (int tile = int(blockIdx.x), now = 0; tile < args.tiles; tile += int(gridDim.x), now ^= 1) {
            const uint8_t* cells = buffer(now);
            ptx::wait_for_copies<0>();
            ptx::show_to_copy_engine();
            __syncthreads();  // the cells are there, and all have done with those of the tile before
            const int next = tile + int(gridDim.x);
            if (next < args.tiles) load_cells(next * tile_positions(), buffer(now ^ 1));
            for (int block = 0; block < args.blocks; ++block) {
                const int first_position = (block * conv_groups + warpgroup) * 64;
                int sums[Outputs / 2];
                Engine::template start<Outputs>(args, memory, cells + first_position * conv_cell_bytes, sums);
                if (block == 0) {  // while the tensor core works
                    fill_places(tile * tile_positions());
                    count_bits(cells);
                    if (is_first) fill_corrections();
                    is_first = false;
                    __syncthreads();
                    fill_terms();
                    __syncthreads();
                }
                Engine::finish(sums);
                switch (args.result.element) {
                case Element::fp16: store<Element::fp16>(sums, first_position + warp * 16); break;
                case Element::bf16: store<Element::bf16>(sums, first_position + warp * 16); break;
                case Element::int32: store<Element::int32>(sums, first_position + warp * 16); break;
                default: store<Element::fp32>(sums, first_position + warp * 16); break;
                }
            }
        }
    }
};

template <class Engine, int Outputs>
__global__ void __launch_bounds__(conv_threads, conv_resident_blocks(Outputs)) tensor_conv(const __grid_constant__ TensorConvArgs args) {
    extern __shared__ __align__(128) uint8_t conv_memory[];
    TensorConv<Engine, Outputs>(args, conv_memory).run();
}

}  // namespace lowbit::cuda
