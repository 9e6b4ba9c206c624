#include "cpu/kernels.hpp"

#include <algorithm>

#include "cpu/convert.hpp"
#include "cpu/convolve.hpp"
#include "cpu/features.hpp"
#include "cpu/isa.hpp"
#include "cpu/matmul.hpp"
#include "cpu/quantize.hpp"

namespace lowbit::cpu {
namespace {

struct IsaRow {
    const Isa* isa;
    const char* needs;
    bool present;
    bool few_loops;  // the other loops in its table are those of AVX-512 (AMX: all but integers and weight4)
    std::string (*supports4)(const core::MatmulProblem&) = supports_weight4;
};

// Widest first.
std::vector<IsaRow> isas() {
    std::vector<IsaRow> rows;
#ifdef LOWBIT_X86
    const Features& found = features();
    rows.push_back({&amx_isa(), "AMX-INT8, AMX-BF16 and AVX-512", found.amx, true, supports_weight4_tiles});
    rows.push_back({&avx512_isa(), "AVX-512 with VNNI", found.avx512, false});
    rows.push_back({&avx2_isa(), "AVX2 with FMA and F16C", found.avx2, false});
#endif
    rows.push_back({&portable_isa(), "nothing", true, false});
    return rows;
}

// Those that multiply 4-bit codes.
std::vector<IsaRow> isas_with_weight4() {
    std::vector<IsaRow> rows = isas();
#ifdef LOWBIT_X86
    const auto place = std::ranges::find(rows, false, &IsaRow::few_loops);
    rows.insert(place, {&avx512_bf16_isa(), "AVX-512 with BF16", features().avx512_bf16, true, supports_weight4_bf16});
#endif
    return rows;
}

// Those that multiply signs.
std::vector<IsaRow> isas_with_bits() {
    std::vector<IsaRow> rows = isas();
    std::erase_if(rows, [](const IsaRow& row) { return row.few_loops; });
#ifdef LOWBIT_X86
    rows.insert(rows.begin(), {&avx512_popcnt_isa(), "AVX-512 with VPOPCNTDQ", features().avx512_popcnt, true});
#endif
    return rows;
}

std::string name(const IsaRow& row, const char* family) { return std::string("cpu_") + row.isa->name + "_" + family; }

std::string unavailable(const IsaRow& row) { return row.present ? "" : std::string("this CPU has no ") + row.needs; }

template <class Problem>
core::Kernel<Problem> kernel(const IsaRow& row, const char* family, std::string (*supports)(const Problem&),
                             void (*run)(const Isa&, const Problem&)) {
    return {name(row, family), Device::cpu, row.needs,
            unavailable(row),  supports,    [isa = row.isa, run](const Problem& problem) { run(*isa, problem); }};
}

template <class Problem>
void add(core::KernelList<Problem>& list, const IsaRow& row, const char* family, std::string (*supports)(const Problem&),
         void (*run)(const Isa&, const Problem&)) {
    list.add(kernel(row, family, supports, run));
}

// Kernels that add up scale * code and minimum apart, of which a value may be the small difference. A part of a sum is made of at most
// K / 14 + 12 additions (18 for 256 values in vectors of four, 5 in vectors of 16), and 2^-14 is twice as many roundings for K = 7000 in
// the first case, 25000 in the other.
void add_apart(core::KernelList<core::MatmulProblem>& list, const IsaRow& row, const char* family,
               std::string (*supports)(const core::MatmulProblem&), void (*run)(const Isa&, const core::MatmulProblem&),
               std::string (*defers)(const core::MatmulProblem&) = nullptr) {
    core::Kernel<core::MatmulProblem> made = kernel(row, family, supports, run);
    made.minimum_rounding = 0x1p-14;
    if (defers) made.defers = defers;
    list.add(std::move(made));
}

}  // namespace

void register_kernels(core::Registry& registry) {
    const std::vector<IsaRow> rows = isas();
    for (const IsaRow& row : isas_with_bits()) add(registry.matmul, row, "bits", supports_bits, run_bits);
    for (const IsaRow& row : rows) {
        core::Kernel<core::MatmulProblem> made = kernel(row, "int8", supports_int8, run_int8);
        made.defers = defers_int8;
        registry.matmul.add(std::move(made));
    }
    for (const IsaRow& row : rows) {
        // Matrix tiles are faster still.
        if (row.isa->integer_slabs && !row.few_loops) add_apart(registry.matmul, row, "slabs", supports_slabs, run_slabs, defers_slabs);
        add(registry.matmul, row, "ggml", supports_ggml, run_ggml);
    }
    for (const IsaRow& row : rows)
        if (!row.few_loops) add_apart(registry.matmul, row, "blocks_int8", supports_blocks_int8, run_blocks_int8);
    for (const IsaRow& row : rows)
        if (!row.few_loops) add(registry.matmul, row, "weight4_int8", supports_weight4_int8, run_weight4_int8);
    for (const IsaRow& row : isas_with_weight4()) {
        if (row.isa->bf16_slabs) add_apart(registry.matmul, row, "slabs", supports_bf16_slabs, run_bf16_slabs, defers_bf16_slabs);
        if (row.isa->float_slabs && !row.few_loops)
            add_apart(registry.matmul, row, "float_slabs", supports_float_slabs, run_float_slabs, defers_float_slabs);
        add(registry.matmul, row, "weight4", row.supports4, run_weight4);
    }
    for (const IsaRow& row : rows)
        if (!row.few_loops) add(registry.matmul, row, "rows", supports_rows, run_rows);
    for (const IsaRow& row : rows)
        if (!row.few_loops) add(registry.matmul, row, "weight8", supports_weight8, run_rows);
    for (const IsaRow& row : rows)
        if (!row.few_loops) add_apart(registry.matmul, row, "blocks", supports_blocks, run_blocks);
    for (const IsaRow& row : rows)
        if (!row.few_loops) add(registry.matmul, row, "dense", supports_dense, run_dense);
    for (const IsaRow& row : rows) {
        if (row.few_loops) continue;
        add(registry.quantize, row, "quantize_int8", supports_quantize_int8, run_quantize_int8);
        add(registry.quantize, row, "quantize_ggml", supports_quantize_ggml, run_quantize_ggml);
        add(registry.convert, row, "convert", supports_convert, run_convert);
    }
    for (const IsaRow& row : isas_with_bits()) add(registry.binary_conv, row, "conv_bits", supports_binary_conv, run_binary_conv);
    const auto anything = [](const auto&) { return std::string(); };
    registry.sign_bits.add({"cpu_sign_bits", Device::cpu, "nothing", "", anything, run_sign_bits});
    registry.quantize.add({"cpu_quantize_rows", Device::cpu, "nothing", "", anything, run_quantize_rows});
    registry.dequantize.add({"cpu_dequantize_rows", Device::cpu, "nothing", "", anything, run_dequantize_rows});
}

}  // namespace lowbit::cpu
