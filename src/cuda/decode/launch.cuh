// Launches the streaming product for one source: the token tiles and row tiles that fit, chosen at run time.
#pragma once
#include <atomic>

#include "cuda/decode/integer_tokens.cuh"
#include "cuda/decode/split.hpp"
#include "cuda/decode/stream.cuh"
#include "cuda/devices.hpp"
#include "cuda/launch.cuh"
#include "cuda/tensor_map.hpp"

namespace lowbit::cuda {

// Of shared memory; a block's barriers and a source's table take the rest.
template <class Source>
int most_dynamic_bytes(const core::Context& context) {
    return devices().devices[size_t(context.device_index)].shared_bytes_per_block - 1024 - Source::table_bytes;
}

template <class C>
void launch_decode(const DecodeArgs& args, const typename C::Source::Args& weight, const core::Context& context) {
    // Asked for once per device: more shared memory than a block gets unasked.
    static std::atomic<uint64_t> ready{0};
    const uint64_t bit = uint64_t(1) << (context.device_index % 64);
    if (!(ready.load(std::memory_order_relaxed) & bit)) {
        check(cudaFuncSetAttribute(decode_stream<C>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   most_dynamic_bytes<typename C::Source>(context)),
              "cudaFuncSetAttribute");
        ready.fetch_or(bit, std::memory_order_relaxed);
    }
    const DecodeSplit& split = args.split;
    constexpr int unit_rows = C::Source::token_unit_bytes / token_run_bytes;
    const int64_t stride = args.token_count > 1 ? args.token_stride : int64_t(split.units) * C::Source::token_unit_bytes;
    TokenMaps maps{};
    if (!args.orders_tokens)
        maps.tokens = token_map(args.tokens, args.token_count, stride, token_run_bytes, int64_t(split.units) * unit_rows,
                                split.phase_units * unit_rows);
    if (C::Source::token_terms && !args.orders_tokens)
        maps.terms = token_map(args.terms, args.token_count, int64_t(split.units) * token_term_bytes, token_term_bytes, split.units,
                               split.phase_units);
    const int warps = C::helping_warps + (C::trades_registers ? most_decode_warps : split.warps());
    launch_in_chain(context, "decode_stream", decode_stream<C>,
                    {blocks_for(args.tiles, split.tiles_per_block), unsigned(warps) * 32, size_t(split.shared_bytes), 1, args.begins_early},
                    args, weight, maps);
}

// How a source's rings look, for split_decode.
template <class Source, int Segments, DecodeScales Scales>
int slot_bytes_of(int row_tiles) {
    return row_tiles == 1 ? DecodeConfig<Source, 1, 1, Segments, Scales>::slot_bytes
                          : DecodeConfig<Source, 1, 2, Segments, Scales>::slot_bytes;
}
template <class Source, int Segments, DecodeScales Scales>
int slots_of(int row_tiles, int token_tiles) {
    if (token_tiles == 1)
        return row_tiles == 1 ? DecodeConfig<Source, 1, 1, Segments, Scales>::slots : DecodeConfig<Source, 1, 2, Segments, Scales>::slots;
    return row_tiles == 1 ? DecodeConfig<Source, 2, 1, Segments, Scales>::slots : DecodeConfig<Source, 2, 2, Segments, Scales>::slots;
}

template <class Source, int Segments, DecodeScales Scales>
void launch_decode_source(DecodeArgs args, const typename Source::Args& weight, int64_t columns, const core::Context& context) {
    const DeviceInfo& device = devices().devices[size_t(context.device_index)];
    args.epilogue.scale *= product_unit<Source>();
    if constexpr (Segments == 0) args.epilogue.scale *= code_unit<Source>(0);  // one for all rows, where no group's scale can have it
    args.split =
        split_decode({args.rows, columns, Source::unit_values, Source::unit_bytes, Source::token_unit_bytes,
                      Source::token_terms ? token_term_bytes : 0, Segments, args.scales.group, slot_bytes_of<Source, Segments, Scales>,
                      slots_of<Source, Segments, Scales>, args.half_tiles > 0, Source::token_terms && can_order_in_block(args.integers)},
                     args.token_count, device.multiprocessors, most_dynamic_bytes<Source>(context));
    if constexpr (Source::token_terms) {
        args.orders_tokens = args.split.phases == 1 && can_order_in_block(args.integers);
        if (!args.orders_tokens) launch_order(args, context);
    }
    args.begins_early |= context.dependent_launch;
    const bool few = args.token_count <= 8, single = args.split.row_tiles == 1;
    if (few && single) return launch_decode<DecodeConfig<Source, 1, 1, Segments, Scales>>(args, weight, context);
    if (single) return launch_decode<DecodeConfig<Source, 2, 1, Segments, Scales>>(args, weight, context);
    if constexpr (Source::unit_bytes <= narrow_unit_bytes) {
        if (few) return launch_decode<DecodeConfig<Source, 1, 2, Segments, Scales>>(args, weight, context);
        launch_decode<DecodeConfig<Source, 2, 2, Segments, Scales>>(args, weight, context);
    }
}

}  // namespace lowbit::cuda
