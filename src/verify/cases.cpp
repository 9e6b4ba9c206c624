#include "core/ggml_blocks.hpp"
#include "verify/verify.hpp"

namespace lowbit::verify {
namespace {

using core::Format;

struct Shape {
    int64_t m, n, k;
};

// 0, 1, 2^n - 1, 2^n, 2^n + 1, primes; few and many tokens.
constexpr Shape shapes[] = {{0, 3, 32},     {3, 0, 32},    {2, 3, 0},     {1, 1, 1},     {1, 5, 31},    {2, 17, 32},
                            {3, 16, 33},    {1, 33, 63},   {4, 15, 64},   {5, 31, 65},   {2, 7, 97},    {7, 64, 127},
                            {8, 19, 128},   {17, 37, 129}, {1, 67, 255},  {31, 32, 256}, {33, 65, 257}, {64, 48, 192},
                            {37, 129, 320}, {2, 3, 1031},  {70, 35, 130}, {1, 40, 2304}};

constexpr EpilogueKind float_epilogues[] = {
    EpilogueKind::none,      EpilogueKind::bias_relu,   EpilogueKind::scales_gelu,      EpilogueKind::gelu_tanh_bf16,
    EpilogueKind::silu_fp16, EpilogueKind::int8_output, EpilogueKind::transposed_output};

// GGML rows are whole blocks.
int64_t fitting_columns(const Format& x, const Format& weight, int64_t k) {
    int64_t block = 1;
    for (const Format& format : {x, weight})
        if (format.is_ggml()) block = std::max<int64_t>(block, core::ggml_block(format.element).values);
    return core::ceil_div(k, block) * block;
}

void add_shapes(std::vector<MatmulCase>& cases, const char* x_name, const Format& weight, size_t stride, bool with_raw = false) {
    const Format x = Format::parse(x_name);
    // Each combination starts at another epilogue, so that all meet all over the table.
    for (size_t i = cases.size() % stride; i < std::size(shapes); i += stride) {
        const int64_t k = fitting_columns(x, weight, shapes[i].k);
        cases.push_back({x, weight, shapes[i].m, shapes[i].n, k, float_epilogues[cases.size() % std::size(float_epilogues)]});
        if (with_raw) cases.push_back({x, weight, shapes[i].m, shapes[i].n, k, EpilogueKind::raw});
    }
}

// Few tokens: more rows than a GPU's blocks share tile by tile, and more of K than they hold at a time.
void add_few_tokens(std::vector<MatmulCase>& cases) {
    constexpr Shape few[] = {{3, 9001, 272}, {2, 34001, 144}, {16, 100, 4464}, {9, 40, 2048}, {1, 400, 512}};
    size_t turn = 0;
    struct Pair {
        const char *x, *weight;
    };
    for (const Pair& pair : {Pair{"bf16", "int4:g128"},
                             Pair{"bf16", "uint4:g128:asym"},
                             Pair{"fp16", "int4:g32"},
                             Pair{"bf16", "uint4:g64:asym"},
                             Pair{"bf16", "int4:row"},
                             Pair{"bf16", "nf4:g64"},
                             Pair{"fp16", "mxfp4"},
                             Pair{"bf16", "nvfp4"},
                             Pair{"bf16", "int8:row"},
                             Pair{"fp16", "int8:g128"},
                             Pair{"fp16", "fp8_e4m3:row"},
                             Pair{"bf16", "fp8_e4m3:block128"},
                             Pair{"bf16", "fp8_e5m2:tensor"},
                             Pair{"bf16", "bf16"},
                             Pair{"int8:row", "int8:row"},
                             Pair{"int8:row", "int8:g128"},
                             Pair{"fp8_e4m3:row", "fp8_e4m3:row"},
                             Pair{"fp8_e4m3:tensor", "fp8_e5m2:row"},
                             Pair{"int8:row", "int4:g128"},
                             Pair{"int8:tensor", "uint4:g32:asym"},
                             Pair{"q8_1", "q4_0"},
                             Pair{"q8_1", "int4:g128"}}) {
        const Format x = Format::parse(pair.x), weight = Format::parse(pair.weight);
        // The two large ones in turn.
        for (size_t i = 0; i < std::size(few); ++i)
            if (i > 1 || i == turn % 2)
                cases.push_back({x, weight, few[i].m, few[i].n, fitting_columns(x, weight, few[i].k),
                                 float_epilogues[cases.size() % std::size(float_epilogues)], true});
        ++turn;
    }
}

// The same for GGML blocks, with few values in all: their reference searches for scales.
void add_few_tokens_of_blocks(std::vector<MatmulCase>& cases) {
    constexpr Shape few[] = {{2, 6500, 160}, {16, 100, 2336}, {5, 40, 1120}, {8, 35, 512}, {1, 400, 224}, {37, 40, 480}};
    size_t turn = 0;
    for (const char* name : {"q8_0", "q4_k", "q6_k", "q5_k", "q4_1", "q5_0", "q5_1", "q3_k", "q2_k"})
        for (const char* x_name : {"q8_1", ++turn % 2 ? "bf16" : "fp16", "int8:row"}) {
            const Format x = Format::parse(x_name), weight = Format::parse(name);
            for (size_t i = x.is_integer() ? 1 : 0; i < std::size(few); ++i)
                cases.push_back({x, weight, i == 0 && (turn + x.is_ggml()) % 2 ? 9 : few[i].m, few[i].n,
                                 fitting_columns(x, weight, few[i].k), float_epilogues[cases.size() % std::size(float_epilogues)], true});
        }
}

// More tokens, in tiles whose last rows, tokens and columns are cut off.
void add_many_tokens(std::vector<MatmulCase>& cases) {
    constexpr Shape many[] = {{65, 264, 208}, {260, 393, 144}, {33, 1040, 1104}, {17, 72, 2320}};
    struct Pair {
        const char *x, *weight;
    };
    for (const Pair& pair : {Pair{"bf16", "bf16"},
                             Pair{"fp16", "fp16"},
                             Pair{"int8:row", "int8:row"},
                             Pair{"int8:tensor", "int8:row"},
                             Pair{"fp8_e4m3:row", "fp8_e4m3:row"},
                             Pair{"fp8_e4m3:tensor", "fp8_e4m3:tensor"},
                             Pair{"fp8_e5m2:row", "fp8_e4m3:row"},
                             Pair{"fp8_e4m3:row", "fp8_e5m2:tensor"},
                             Pair{"fp8_e5m2:tensor", "fp8_e5m2:row"},
                             Pair{"bf16", "int4:g128"},
                             Pair{"fp16", "int4:g64:scale_bf16"},
                             Pair{"bf16", "int4:g32"},
                             Pair{"bf16", "int4:row"},
                             Pair{"fp16", "uint4:g128:asym"},
                             Pair{"bf16", "uint4:g32:asym"},
                             Pair{"bf16", "q4_0"},
                             Pair{"fp16", "q4_0"},
                             Pair{"bf16", "nf4:g64"},
                             Pair{"fp16", "nf4:row"},
                             Pair{"bf16", "mxfp4"},
                             Pair{"fp16", "nvfp4"},
                             Pair{"bf16", "int8:row"},
                             Pair{"fp16", "int8:tensor"},
                             Pair{"bf16", "fp8_e4m3:row"},
                             Pair{"fp16", "fp8_e4m3:tensor"},
                             Pair{"fp8_e4m3:g128", "fp8_e4m3:block128"},
                             Pair{"fp8_e4m3:g128", "fp8_e4m3:g128"},
                             Pair{"int8:row", "int4:row"},
                             Pair{"uint8:row:asym", "int8:row"},
                             Pair{"uint8:tensor:asym", "int8:tensor"},
                             Pair{"int4:row", "int4:row"},
                             Pair{"int8:row", "int4:g128"},
                             Pair{"int8:tensor", "int4:g256:scale_bf16"},
                             Pair{"q8_1", "q4_0"},
                             Pair{"q8_1", "q4_k"},
                             Pair{"q8_0", "q6_k"},
                             Pair{"int8:row", "nf4:g64"},
                             Pair{"fp8_e4m3:row", "int4:g128"},
                             Pair{"fp8_e4m3:tensor", "int4:g256:scale_bf16"},
                             Pair{"fp8_e4m3:row", "int4:row"},
                             Pair{"fp8_e4m3:row", "uint4:g128:asym"},
                             Pair{"bf16", "q8_0"},
                             Pair{"fp16", "q8_0"},
                             Pair{"bf16", "q4_k"},
                             Pair{"fp16", "q4_k"},
                             Pair{"bf16", "q5_k"},
                             Pair{"fp16", "q5_k"},
                             Pair{"bf16", "q6_k"},
                             Pair{"fp16", "q6_k"},
                             Pair{"bf16", "q4_1"},
                             Pair{"fp16", "q4_1"},
                             Pair{"bf16", "q5_0"},
                             Pair{"fp16", "q5_0"},
                             Pair{"bf16", "q5_1"},
                             Pair{"fp16", "q5_1"},
                             Pair{"bf16", "q3_k"},
                             Pair{"fp16", "q3_k"},
                             Pair{"bf16", "q2_k"},
                             Pair{"fp16", "q2_k"},
                             Pair{"bf16", "iq4_nl"},
                             Pair{"fp16", "iq4_nl"}}) {
        const Format x = Format::parse(pair.x), weight = Format::parse(pair.weight);
        for (const Shape& size : many) {
            const int64_t k = fitting_columns(x, weight, size.k);
            const EpilogueKind any = float_epilogues[cases.size() % std::size(float_epilogues)];
            cases.push_back({x, weight, size.m, size.n, k, any, true});
            cases.push_back({x, weight, size.m, size.n, k, size.m % 2 ? EpilogueKind::scales_bf16 : EpilogueKind::scales_fp16, true});
        }
    }
    for (const Shape& size : many)
        cases.push_back({Format::parse("int8:row"), Format::parse("int8:row"), size.m, size.n, size.k, EpilogueKind::raw, true});
    // Bits: rows of whole 16 bytes, which the copy engine takes, and one that ends inside of a byte.
    const Format bits = Format::parse("int1:row");
    for (const Shape& size : {Shape{65, 264, 1280}, Shape{130, 200, 2048}, Shape{9, 264, 9344}, Shape{17, 72, 18430}})
        for (const EpilogueKind kind : {EpilogueKind::raw, EpilogueKind::scales_bf16, EpilogueKind::scales_fp16})
            cases.push_back({bits, bits, size.m, size.n, size.k, kind, true});
}

// Tokens of every kind, more of them and more of K than a slab of the CPU's has, with groups of every size it takes.
void add_slabs(std::vector<MatmulCase>& cases) {
    constexpr Shape sizes[] = {{6, 31, 480}, {300, 33, 544}, {47, 47, 1056}, {130, 65, 1536}, {9, 1, 96}, {17, 33, 2080}};
    struct Pair {
        const char *x, *weight;
    };
    for (const Pair& pair : {Pair{"q8_1", "int4:g32"},
                             Pair{"int8:row", "int4:g128"},
                             Pair{"int8:tensor", "int4:g96"},
                             Pair{"int8:row", "int4:g48"},
                             Pair{"q8_0", "int4:row"},
                             Pair{"int8:row", "uint4:g128:asym"},
                             Pair{"q8_1", "uint4:g64:asym"},
                             Pair{"int8:row", "uint4:g16:asym"},
                             Pair{"int8:row", "int8:g128"},
                             Pair{"q8_1", "int8:g32"},
                             Pair{"int8:row", "uint8:g256:asym"},
                             Pair{"int8:tensor", "uint8:g80:asym"},
                             Pair{"q8_0", "int8:row"},
                             Pair{"int8:row", "mxfp4"},
                             Pair{"q8_1", "mxfp4"},
                             Pair{"int8:row", "nvfp4"},
                             Pair{"q8_1", "nvfp4"},
                             Pair{"int8:row", "iq4_nl"},
                             Pair{"q8_1", "iq4_nl"},
                             Pair{"q8_0", "q4_0"},
                             Pair{"q8_1", "q8_0"},
                             Pair{"q8_1", "q4_1"},
                             Pair{"q8_1", "q5_0"},
                             Pair{"int8:row", "q5_1"},
                             Pair{"q8_1", "q2_k"},
                             Pair{"q8_0", "q3_k"},
                             Pair{"q8_1", "q4_k"},
                             Pair{"int8:row", "q5_k"},
                             Pair{"q8_1", "q6_k"},
                             Pair{"int8:row", "int8:row"},
                             Pair{"uint8:row:asym", "int8:row"},
                             Pair{"int8:row", "uint8:row:asym"},
                             Pair{"bf16", "int4:g128"},
                             Pair{"bf16", "int4:g48"},
                             Pair{"fp16", "uint4:g32:asym"},
                             Pair{"bf16", "uint8:g80:asym"},
                             Pair{"fp16", "int8:row"},
                             Pair{"bf16", "nvfp4"},
                             Pair{"fp16", "mxfp4"},
                             Pair{"bf16", "q4_0"},
                             Pair{"fp16", "q4_1"},
                             Pair{"bf16", "q5_0"},
                             Pair{"bf16", "q8_0"},
                             Pair{"fp16", "iq4_nl"},
                             Pair{"bf16", "q2_k"},
                             Pair{"bf16", "q3_k"},
                             Pair{"bf16", "q4_k"},
                             Pair{"fp16", "q6_k"},
                             Pair{"bf16", "bf16"},
                             Pair{"fp16", "bf16"},
                             Pair{"fp32", "fp32"},
                             Pair{"bf16", "fp16"},
                             Pair{"fp32", "int4:g128"},
                             Pair{"fp32", "nf4:g64"},
                             Pair{"bf16", "fp8_e4m3:block128"},
                             Pair{"fp32", "fp8_e5m2:row"},
                             Pair{"fp8_e4m3:row", "fp8_e4m3:row"},
                             Pair{"fp32", "q6_k"},
                             Pair{"fp32", "uint4:g48:asym"}}) {
        const Format x = Format::parse(pair.x), weight = Format::parse(pair.weight);
        for (const Shape& size : sizes)
            cases.push_back({x, weight, size.m, size.n, fitting_columns(x, weight, size.k),
                             float_epilogues[cases.size() % std::size(float_epilogues)]});
    }
    for (const Shape& size : sizes)
        for (const char* name : {"int8:row", "uint8:row:asym"})
            cases.push_back({Format::parse(name), Format::parse("int8:row"), size.m, size.n, size.k + 3, EpilogueKind::raw});
}

// Epilogues that most products do without, for every kernel: sizes (of a gate's halves) that end inside of tiles and groups, and whole
// ones, whose gate few tokens have fused.
void add_rare_epilogues(std::vector<MatmulCase>& cases, std::initializer_list<EpilogueKind> kinds) {
    constexpr Shape small[] = {{0, 3, 32}, {3, 0, 32}, {2, 3, 0}, {1, 1, 1}, {3, 17, 65}, {5, 32, 128}, {33, 21, 257}, {1, 48, 320}};
    constexpr Shape large[] = {{1, 48, 1024}, {5, 640, 272}, {16, 160, 2048}, {3, 2128, 144}, {9, 100, 512}, {130, 264, 208}};
    struct Pair {
        const char *x, *weight;
    };
    for (const Pair& pair : {Pair{"fp32", "fp32"},
                             Pair{"fp32", "int4:g32"},
                             Pair{"fp32", "int8:row"},
                             Pair{"bf16", "bf16"},
                             Pair{"fp16", "fp16"},
                             Pair{"bf16", "int4:g128"},
                             Pair{"fp16", "uint4:g32:asym"},
                             Pair{"bf16", "int4:row"},
                             Pair{"bf16", "nf4:g64"},
                             Pair{"fp16", "mxfp4"},
                             Pair{"bf16", "int8:row"},
                             Pair{"fp16", "int8:g128"},
                             Pair{"bf16", "fp8_e4m3:block128"},
                             Pair{"fp16", "fp8_e5m2:tensor"},
                             Pair{"fp16", "fp8_e4m3:row"},
                             Pair{"int8:row", "int8:row"},
                             Pair{"uint8:row:asym", "uint8:row:asym"},
                             Pair{"uint8:row:asym", "int8:row"},
                             Pair{"int1:row", "int1:row"},
                             Pair{"int8:row", "int4:row"},
                             Pair{"int8:row", "int4:g128"},
                             Pair{"fp8_e4m3:row", "fp8_e4m3:row"},
                             Pair{"fp8_e4m3:g128", "fp8_e4m3:block128"},
                             Pair{"q8_1", "q4_0"},
                             Pair{"q8_1", "q8_0"},
                             Pair{"bf16", "q4_k"},
                             Pair{"q8_1", "q6_k"},
                             Pair{"fp8_e4m3:row", "int4:row"},
                             Pair{"fp8_e4m3:row", "int4:g128"}}) {
        const Format x = Format::parse(pair.x), weight = Format::parse(pair.weight);
        const auto add = [&](const Shape& size, bool for_gpus) {
            const EpilogueKind kind = kinds.begin()[cases.size() % kinds.size()];
            cases.push_back({x, weight, size.m, size.n, fitting_columns(x, weight, size.k), kind, for_gpus});
        };
        for (const Shape& size : small) add(size, false);
        for (const Shape& size : large) add(size, true);
    }
}

}  // namespace

std::vector<MatmulCase> matmul_cases() {
    std::vector<MatmulCase> cases;
    for (const Format& weight : core::common_formats()) {
        add_shapes(cases, "fp32", weight, 1);
        add_shapes(cases, "bf16", weight, 5);
        add_shapes(cases, "fp16", weight, 5);
        add_shapes(cases, "fp8_e4m3:g128", weight, 7);
    }
    // Groups that divide nothing evenly, scales of every type, blocks that are not square.
    for (const char* name : {"int4:g96",
                             "int4:g33",
                             "int4:g7",
                             "uint4:g96:asym",
                             "nf4:g32",
                             "nf4:row",
                             "int8:g33",
                             "uint8:g100:asym",
                             "int4:g64:scale_bf16",
                             "uint4:row:asym",
                             "uint4:tensor:asym",
                             "int4:tensor",
                             "int1:g64",
                             "int1:tensor",
                             "fp4_e2m1:g32",
                             "fp8_e4m3:block16x32",
                             "int4:block32",
                             "int8:block64",
                             "uint8:block3x5:asym",
                             "fp8_e5m2:g32:scale_e8m0"})
        add_shapes(cases, "fp32", Format::parse(name), 1);
    for (const char* weight : {"int8:row", "int8:tensor", "uint8:row:asym", "uint8:tensor:asym", "int4:row", "uint4:row:asym", "int1:row"})
        for (const char* x : {"int8:row", "int8:tensor", "uint8:row:asym", "int4:row", "uint4:row:asym", "int1:row"})
            add_shapes(cases, x, Format::parse(weight), 2, true);
    for (const char* weight : {"int4:g128", "int8:g33", "uint4:g32:asym"}) add_shapes(cases, "int8:row", Format::parse(weight), 2, true);
    for (const char* weight : {"q4_0", "q8_0", "q4_1", "q4_k", "q6_k", "int4:g32"})
        for (const char* x : {"q8_1", "q8_0"}) add_shapes(cases, x, Format::parse(weight), 1);
    for (const char* weight : {"q5_0", "q5_1", "q2_k", "q3_k", "q5_k"}) add_shapes(cases, "q8_1", Format::parse(weight), 2);
    for (const char* weight : {"q4_0", "q8_0", "q4_1", "q5_0", "q5_1", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k"})
        add_shapes(cases, "int8:row", Format::parse(weight), 5);
    // More tokens, rows and columns than an inner loop takes at a time.
    for (const char* name : {"int8:row", "uint8:row:asym"})
        for (const EpilogueKind epilogue : {EpilogueKind::none, EpilogueKind::scales_gelu, EpilogueKind::raw})
            cases.push_back({Format::parse(name), Format::parse(name), 521, 37, 1091, epilogue});
    cases.push_back({Format::parse("q8_1"), Format::parse("q4_0"), 521, 37, 1120, EpilogueKind::none});
    add_few_tokens(cases);
    add_few_tokens_of_blocks(cases);
    add_many_tokens(cases);
    add_slabs(cases);
    add_rare_epilogues(cases, {EpilogueKind::gate_silu, EpilogueKind::gate_gelu_bf16, EpilogueKind::gate_int8});
    add_rare_epilogues(cases, {EpilogueKind::beta_relu, EpilogueKind::beta_scales_bf16, EpilogueKind::beta_gelu_fp16,
                               EpilogueKind::beta_scales_bf16, EpilogueKind::gate_beta});
    return cases;
}

std::vector<QuantizeCase> quantize_cases() {
    std::vector<Format> formats = core::common_formats();
    for (const char* name : {"int4:g33", "int4:g7", "uint4:g5:asym", "int8:g33", "uint8:g100:asym", "int1:g64", "int1:tensor", "nf4:row",
                             "int8:block3x5", "uint8:block7:asym", "fp8_e4m3:block16x32", "fp4_e2m1:tensor", "int4:g32:scale_bf16",
                             "int8:row:scale_fp16", "fp8_e5m2:g32:scale_e8m0", "fp8_e4m3:g16:scale_fp8_e4m3"})
        formats.push_back(Format::parse(name));
    struct Size {
        int64_t rows, columns;
    };
    constexpr Size sizes[] = {{0, 64}, {3, 0}, {1, 1}, {2, 31}, {5, 33}, {3, 128}, {7, 257}, {4, 515}, {129, 64}, {2, 1024}};
    std::vector<QuantizeCase> cases;
    for (const Format& format : formats)
        for (const Size& size : sizes)
            for (const bool special : {false, true}) {
                const Element element = special ? Element::fp32 : std::array{Element::fp32, Element::fp16, Element::bf16}[cases.size() % 3];
                const int64_t columns = fitting_columns(format, format, size.columns);
                cases.push_back({format, element, size.rows, columns, false, special});
                if (format.granularity != Granularity::none) cases.push_back({format, element, size.rows, columns, true, special});
            }
    return cases;
}

std::vector<ConvertCase> convert_cases() {
    constexpr Element elements[] = {Element::fp32, Element::fp16, Element::bf16, Element::fp8_e4m3, Element::fp8_e5m2};
    struct Size {
        int64_t rows, columns;
    };
    constexpr Size sizes[] = {{0, 5}, {3, 0}, {1, 1}, {1, 37}, {41, 1}, {3, 64}, {5, 31}, {67, 130}, {64, 192}, {2, 5000}};
    std::vector<ConvertCase> cases;
    for (const Element from : elements)
        for (const Element to : elements)
            for (const Size& size : sizes)
                for (const int transposed : {0, 1, 2, 3})
                    cases.push_back({from, to, size.rows, size.columns, transposed % 2 == 1, transposed / 2 == 1});
    return cases;
}

std::string MatmulCase::text() const {
    return core::join(x.print(), " x ", weight.print(), " ", m, "x", n, "x", k, " epilogue ", int(epilogue));
}

std::string QuantizeCase::text() const {
    return core::join(core::element_name(element), " -> ", format.print(), " ", rows, "x", columns, static_scales ? " static" : "",
                      special_values ? " special" : "");
}

std::string ConvertCase::text() const {
    return core::join(core::element_name(from), x_transposed ? "^T" : "", " -> ", core::element_name(to), y_transposed ? "^T " : " ", rows,
                      "x", columns);
}

}  // namespace lowbit::verify
