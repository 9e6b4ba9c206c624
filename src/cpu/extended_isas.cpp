// The tables of AVX-512 with some loops replaced. Not in the folders of those, where the compiler may copy a table with instructions that
// few processors have: every x86 asks for them.
#ifdef LOWBIT_X86
#include "cpu/amx/products.hpp"

namespace lowbit::cpu {
namespace {

template <class Replace>
Isa extended(const char* name, const Replace& replace) {
    Isa table = avx512_isa();
    table.name = name;
    replace(table);
    return table;
}

}  // namespace

const Isa& avx512_popcnt_isa() {
    static const Isa isa = extended("avx512_popcnt", [](Isa& table) { table.bits = avx512_popcnt_bits; });
    return isa;
}

const Isa& avx512_bf16_isa() {
    static const Isa isa = extended("avx512_bf16", [](Isa& table) {
        table.weight4 = avx512_bf16::weight4;
        table.bf16_slabs = avx512_bf16::bf16_slabs;
        table.packed4_bytes = avx512_bf16::packed4_bytes;
        table.pack4 = avx512_bf16::pack4;
    });
    return isa;
}

const Isa& amx_isa() {
    static const Isa isa = extended("amx", [](Isa& table) {
        table.int8 = amx::int8;
        table.exact_slabs = nullptr;
        table.packed8_bytes = amx::packed8_bytes;
        table.pack8 = amx::pack8;
        table.q4_0_q8 = amx::q4_0_q8;
        table.q8_0_q8 = amx::q8_0_q8;
        table.weight4 = amx::weight4;
        table.packed4_bytes = amx::packed4_bytes;
        table.pack4 = amx::pack4;
        table.int_lines = amx::int_lines;
        table.float_lines = amx::float_lines;
        table.integer_peak = amx::integer_peak;
    });
    return isa;
}

}  // namespace lowbit::cpu
#endif
