// The weight's way: codes and scales through the ring of a warp, unit after unit.
#pragma once
#include "cuda/decode/config.cuh"
#include "cuda/formats/small_numbers.cuh"

namespace lowbit::cuda {

// What a warp keeps of a unit from its slot.
template <class C>
struct UnitInRegisters {
    static constexpr int segments = C::Segments > 0 ? C::Segments : 1;
    typename C::Source::Codes codes[C::RowTiles];
    uint32_t scales[C::RowTiles][segments];  // of rows g and g + 8, as they lie in memory
    uint32_t second_scales[C::RowTiles][C::Scales == DecodeScales::fp32 || C::Scales == DecodeScales::rows ? segments : 1];
    uint32_t zeros[C::RowTiles][segments];
    typename C::Source::Terms terms[C::RowTiles];

    __device__ void load(uint32_t slot, int lane) {
#pragma unroll
        for (int r = 0; r < C::RowTiles; ++r) {
            codes[r].load(slot + r * C::Source::unit_bytes, lane);
            const uint32_t at = slot + C::scales_at + r * C::scale_room, g = uint32_t(lane / 4);
            if constexpr (C::Scales == DecodeScales::blocks) terms[r].load(at, lane);
#pragma unroll
            for (int s = 0; s < C::Segments; ++s) {
                if constexpr (C::Scales == DecodeScales::rows || C::Scales == DecodeScales::blocks) {
                } else if constexpr (C::Scales == DecodeScales::halves) {
                    scales[r][s] = ptx::load_4(at + s * 32 + g * 4);
                } else if constexpr (C::Scales == DecodeScales::fp32) {
                    const uint2 pair = ptx::load_8(at + s * 64 + g * 8);
                    scales[r][s] = pair.x, second_scales[r][s] = pair.y;
                } else {
                    scales[r][s] = ptx::load_2(at + s * 16 + g * 2);
                }
                if constexpr (C::zero_points) zeros[r][s] = ptx::load_2(slot + C::zeros_at + r * C::zero_room + s * 16 + g * 2);
            }
        }
    }
    __device__ float scale(int r, int s, int half, const DecodeArgs& args) const {
        if constexpr (C::Scales == DecodeScales::blocks) {
            return terms[r].scale(s, half);
        } else if constexpr (C::Scales == DecodeScales::halves) {
            const uint32_t bits = half ? scales[r][s] >> 16 : scales[r][s] & 0xffffu;
            return args.scales.element == Element::fp16 ? half_to_float(uint16_t(bits)) : bfloat_to_float(uint16_t(bits));
        } else if constexpr (C::Scales == DecodeScales::rows) {
            return args.scales.value(half ? second_scales[r][s] : scales[r][s]);
        } else if constexpr (C::Scales == DecodeScales::fp32) {
            return __uint_as_float(half ? second_scales[r][s] : scales[r][s]);
        } else if constexpr (C::Scales == DecodeScales::e8m0) {
            // 2^-127 is a subnormal, and 255 is NaN.
            const uint32_t bits = scales[r][s] >> (8 * half) & 0xffu, number = bits << 23;
            return __uint_as_float(bits == 255 ? 0x7fffffffu : number > 0x00400000u ? number : 0x00400000u);
        } else {
            const uint32_t pair = fp8_pair_to_half<Element::fp8_e4m3>(scales[r][s]);
            return half_to_float(uint16_t(half ? pair >> 16 : pair));
        }
    }
    __device__ typename C::Source::Group group(int r, int s) const {
        using Group = typename C::Source::Group;
        if constexpr (has_scaled_weights<typename C::Source>) {
            Group group;
            if constexpr (C::Scales == DecodeScales::e8m0)
                group.set_e8m0(scales[r][s]);
            else
                group.set_e4m3(scales[r][s], 1.0f);  // the scale of the tensor is the epilogue's
            return group;
        } else {
            return Group(C::zero_points ? zeros[r][s] : 0);
        }
    }
};

// Brings one unit after the other into the ring of a warp: every `step`-th of its tiles.
template <class C>
class UnitStream {
    using Source = typename C::Source;

public:
    __device__ UnitStream(const DecodeArgs& args, const typename Source::Args& weight, int first_tile, int depth_warp, int step)
        : args_(args), weight_(weight), unit_(depth_warp), step_(step) {
#pragma unroll
        for (int r = 0; r < C::RowTiles; ++r) codes_[r] = Source::first(weight, args.tile(first_tile + r), depth_warp);
        if constexpr (C::Scales == DecodeScales::rows) {
#pragma unroll
            for (int r = 0; r < C::RowTiles; ++r) first_row_[r] = int64_t(args.tile(first_tile + r)) * rows_per_tile + threadIdx.x % 32 / 4;
            ahead_unit_ = depth_warp;
            load_ahead();
        } else if constexpr (C::Scales == DecodeScales::blocks) {
            const int lane = threadIdx.x % 32, r = lane / 16, chunk = lane % 16;  // of 16 bytes, as below
            scale_segment_ = r < C::RowTiles && chunk * 16 < C::scale_room ? chunk : none;
            scales_ = weight.terms + args.tile(first_tile + r) * weight.tile_term_bytes;
            scale_place_ = C::scales_at + r * C::scale_room + chunk * 16;
            ptx::hold(scales_), ptx::hold(scale_segment_), ptx::hold(scale_place_);
        } else if constexpr (C::Segments > 0) {
            // 16 bytes of scales per lane: the lower half of the warp for the first tile, the upper for the second.
            const int lane = threadIdx.x % 32, r = lane / 16, chunk = lane % 16;
            const int64_t tile = args.tile(first_tile + r);
            const GroupScales& scales = args.scales;
            constexpr int bytes = tile_scale_bytes_of(C::Scales);  // chunks of a group, too
            const int segment = bytes == 2 ? chunk / 2 : bytes == 4 ? chunk / 4 : chunk;
            scale_segment_ = r < C::RowTiles && segment < C::Segments ? segment : none;
            scales_ = scales.data + tile * scales.row_step + (chunk - segment * bytes) * 16;
            scale_place_ = C::scales_at + r * C::scale_room + chunk * 16;
            ptx::hold(scales_), ptx::hold(scale_segment_), ptx::hold(scale_place_);
            if constexpr (C::zero_points) {
                zero_segment_ = r < C::RowTiles && chunk < C::Segments ? chunk : none;
                zeros_ = scales.zero_points + tile * scales.row_step / scales.bytes;
                zero_place_ = C::zeros_at + r * C::zero_room + chunk * 16;
                ptx::hold(zeros_), ptx::hold(zero_segment_), ptx::hold(zero_place_);
            }
        }
    }

    __device__ void fetch(uint32_t slot, int lane) {
        if (unit_ < args_.split.units) {
#pragma unroll
            for (int r = 0; r < C::RowTiles; ++r) Source::copy(slot + r * Source::unit_bytes, lane, weight_, codes_[r], unit_, step_);
            if constexpr (C::Scales == DecodeScales::blocks) {
                if (scale_segment_ != none)
                    ptx::stream_16(slot + scale_place_, scales_ + Source::Terms::offset(unit_, scale_segment_),
                                   Source::Terms::exists(unit_, scale_segment_, weight_.blocks));
            } else if constexpr (C::Segments > 0 && C::Scales != DecodeScales::rows) {
                const auto group_of = [&](int segment) { return int(args_.split.span.quotient(uint32_t(unit_ * C::Segments + segment))); };
                if (scale_segment_ != none) {
                    const int group = group_of(scale_segment_);
                    ptx::stream_16(slot + scale_place_, scales_ + group * args_.scales.group_step, group < args_.groups);
                }
                if constexpr (C::zero_points)
                    if (zero_segment_ != none) {
                        const int group = group_of(zero_segment_);
                        ptx::stream_16(slot + zero_place_, zeros_ + group * 16, group < args_.groups);
                    }
            }
            unit_ += step_;
        }
        ptx::commit_copies();
    }

    // Scales in rows: those of the unit in hand, and on to the next.
    __device__ void take_scales(UnitInRegisters<C>& unit) {
        if constexpr (C::Scales == DecodeScales::rows) {
#pragma unroll
            for (int r = 0; r < C::RowTiles; ++r)
#pragma unroll
                for (int s = 0; s < C::Segments; ++s) unit.scales[r][s] = ahead_[r][s][0], unit.second_scales[r][s] = ahead_[r][s][1];
            ahead_unit_ += step_;
            load_ahead();
        }
    }

private:
    __device__ void load_ahead() {
#pragma unroll
        for (int s = 0; s < C::Segments; ++s) {
            const int group = smaller(int(args_.split.span.quotient(uint32_t(ahead_unit_ * C::Segments + s))), args_.groups - 1);
#pragma unroll
            for (int r = 0; r < C::RowTiles; ++r)
#pragma unroll
                for (int half = 0; half < 2; ++half)
                    ahead_[r][s][half] = args_.scales.bits_at(smaller(first_row_[r] + 8 * half, args_.rows - 1), group);
        }
    }

    const DecodeArgs& args_;
    const typename Source::Args& weight_;
    int unit_, step_;
    int ahead_unit_ = 0;
    int64_t first_row_[C::RowTiles];
    uint32_t ahead_[C::RowTiles][C::Scales == DecodeScales::rows ? C::Segments : 1][2];
    typename Source::Place codes_[C::RowTiles];
    const uint8_t* scales_ = nullptr;
    const uint8_t* zeros_ = nullptr;
    int scale_place_ = 0, zero_place_ = 0;
    static constexpr int none = -1;
    int scale_segment_ = none, zero_segment_ = none;  // whose scales (terms: which 16 bytes) and zero points this lane brings
};

}  // namespace lowbit::cuda
