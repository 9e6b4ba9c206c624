// The API on a GPU: what the tables of kernels_test.cpp do not reach. Numbers are small integers, so that every order of additions gives
// the same sum and two kernels must agree to the bit.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>

#include "core/packed.hpp"
#include "core/registry.hpp"
#include "cuda/devices.hpp"
#include "cuda/memory.hpp"
#include "lowbit/lowbit.hpp"
#include "verify/mirror.hpp"
#include "verify/random.hpp"
#include "verify/storage.hpp"
#include "verify/verify.hpp"

namespace lowbit {
namespace {

constexpr std::array tile_formats = {"int4:g128", "int4:row", "uint4:g32:asym", "nf4:g64", "mxfp4", "nvfp4", "q4_0", "iq4_nl", "q8_0",
                                     "q4_1",      "q5_0",     "q5_1",           "q2_k",    "q3_k",  "q4_k",  "q5_k", "q6_k"};

// Not whole atoms, nor whole units, where the format allows it.
int64_t tile_columns(const core::Format& format) {
    if (!format.is_ggml()) return 75;
    return core::ggml_block(format.element).values == 32 ? 160 : 768;
}

class CudaApi : public testing::Test {
protected:
    void SetUp() override {
        if (const std::string& problem = cuda::devices().problem; !problem.empty()) GTEST_SKIP() << problem;
        verify::use_device(memory_, Device::cuda);
    }

    // Integers from -7 to 7; the first of every 32 is `largest`: 7 makes the scale of every group of int4 1, 127 that of int8.
    static std::vector<float> integers(int64_t count, uint64_t seed, float largest = 7.0f) {
        verify::Random random(seed);
        std::vector<float> values(static_cast<size_t>(count));
        for (size_t i = 0; i < values.size(); ++i) values[i] = i % 32 == 0 ? largest : float(random.below(15) - 7);
        return values;
    }

    lowbit_tensor tensor(Element element, int64_t rows, int64_t columns, const std::vector<float>& values) {
        verify::MatrixStorage host(element, rows, columns);
        host.fill(values);
        buffers_.emplace_back(memory_.allocator, rows * columns * core::element_bytes(element));
        cuda::copy_to_device(memory_, buffers_.back().data(), host.tensor().data, buffers_.back().bytes());
        return on_device(element, rows, columns, buffers_.back().data());
    }
    lowbit_tensor output(Element element, int64_t rows, int64_t columns) {
        return tensor(element, rows, columns, std::vector<float>(size_t(rows * columns), -77.0f));
    }
    std::vector<float> read(const lowbit_tensor& t) {
        verify::MatrixStorage host(Element(t.element), t.shape[0], t.shape[1]);
        cuda::copy_to_host(memory_, host.tensor().data, t.data, t.shape[0] * t.shape[1] * core::element_bytes(Element(t.element)));
        std::vector<float> values;
        for (int64_t i = 0; i < t.shape[0] * t.shape[1]; ++i) values.push_back(float(host.at(i / t.shape[1], i % t.shape[1])));
        return values;
    }
    static lowbit_tensor on_device(Element element, int64_t rows, int64_t columns, void* data) {
        lowbit_tensor t = lowbit_matrix(data, lowbit_element(element), rows, columns);
        t.device = LOWBIT_CUDA;
        return t;
    }
    void give_workspace(Context& context, size_t bytes) {
        buffers_.emplace_back(memory_.allocator, int64_t(bytes));
        context.set_workspace(buffers_.back().data(), bytes);
    }

    core::Context memory_;
    std::vector<core::Buffer> buffers_;
};

struct Product {
    const char* weight;
    const char* x;  // of bf16 or fp16 numbers, quantized on the way where it is another format
    int64_t m, n, k;
    const char* kernel = "";  // forced
};

// Sizes at which every tile of the main loop is the best, and splits of K.
TEST_F(CudaApi, EveryTileAgreesWithTheKernelForAnything) {
    for (const Product& p :
         {Product{"bf16", "bf16", 4096, 4224, 1024}, Product{"bf16", "bf16", 300, 700, 1056},
          Product{"bf16", "bf16", 16, 192, 4096, "ampere_bf16"}, Product{"fp16", "fp16", 1024, 4096, 512},
          Product{"fp16", "fp16", 50, 333, 2048}, Product{"int4:g128", "bf16", 1000, 4100, 1024},
          Product{"int4:g128", "bf16", 60, 1000, 2048}, Product{"int4:g128", "bf16", 7, 4096, 4096, "ampere_tiles_bf16"},
          Product{"int4:g32", "fp16", 130, 900, 1056}, Product{"int8:row", "int8:row", 4096, 4224, 1024},
          Product{"int8:row", "int8:row", 5, 1000, 4096, "ampere_int8"}, Product{"int4:g128", "int8:row", 200, 500, 1024},
          Product{"int4:g128", "bf16", 130, 900, 1024, "hopper_two_parts"}, Product{"bf16", "bf16", 400, 300, 512, "hopper_two_parts"},
          Product{"int8:row", "int8:row", 257, 700, 1024, "hopper_two_parts"}}) {
        if (std::string(p.kernel).starts_with("hopper") && cuda::devices().devices[0].major != 9) continue;
        SCOPED_TRACE(testing::Message() << p.weight << " x " << p.x << " " << p.m << "x" << p.n << "x" << p.k);
        const Element plain = std::string(p.x) == "fp16" ? Element::fp16 : Element::bf16;
        const auto largest = [](const char* format) { return std::string(format).starts_with("int8") ? 127.0f : 7.0f; };
        const Tensor x(tensor(plain, p.m, p.k, integers(p.m * p.k, 1, largest(p.x)))),
            weight(tensor(plain, p.n, p.k, integers(p.n * p.k, 2, largest(p.weight))));
        const lowbit_tensor fast = output(Element::fp32, p.m, p.n), plainly = output(Element::fp32, p.m, p.n);
        Context context = Context::cuda(0);
        const bool quantized = std::string(p.weight).find(':') != std::string::npos;
        const Epilogue epilogue{.x_format = std::string(p.x).find(':') != std::string::npos ? p.x : ""};
        std::optional<Quantized> q;
        std::optional<Packed> packed;
        if (quantized) packed.emplace(pack(context, q.emplace(quantize(context, weight, std::string(p.weight)))));
        if (*p.kernel) context.set_kernel(p.kernel);
        const Operand operand = packed ? Operand(*packed) : Operand(weight);
        give_workspace(context, matmul_workspace(context, x, operand, Tensor(fast), epilogue));
        matmul(context, x, operand, Tensor(fast), epilogue);
        const std::string chosen = explain(context, x, operand, Tensor(fast), epilogue);
        EXPECT_TRUE(chosen.find("chosen: ampere") != std::string::npos || chosen.find("chosen: hopper") != std::string::npos) << chosen;
        context.set_kernel("cuda_universal");
        give_workspace(context, matmul_workspace(context, x, operand, Tensor(plainly), epilogue));
        matmul(context, x, operand, Tensor(plainly), epilogue);
        const std::vector<float> a = read(fast), b = read(plainly);
        size_t different = 0;
        for (size_t i = 0; i < a.size(); ++i) different += a[i] != b[i];
        EXPECT_EQ(different, 0u) << "the first result is " << a[0] << ", expected " << b[0];
        buffers_.clear();
    }
}

// A token's result is the same bits whatever its company.
TEST_F(CudaApi, FewTokensDoNotDependOnEachOther) {
    for (const Product& p :
         {Product{"int4:g128", "bf16", 16, 600, 4096}, Product{"int4:g128", "bf16", 16, 9000, 640},
          Product{"nf4:g64", "bf16", 16, 100, 2112}, Product{"int4:g32", "fp16", 16, 333, 1056}, Product{"int8:row", "bf16", 16, 600, 4096},
          Product{"int8:row", "int8:row", 16, 600, 4096}, Product{"fp8_e4m3:row", "fp16", 16, 40, 2048},
          Product{"q4_0", "q8_1", 16, 600, 4096}, Product{"bf16", "bf16", 16, 600, 4096}, Product{"q8_0", "bf16", 16, 600, 4096},
          Product{"q4_k", "bf16", 16, 600, 4096}, Product{"q5_1", "fp16", 16, 9000, 672}, Product{"q6_k", "q8_1", 16, 600, 4096},
          Product{"q4_k", "q8_1", 16, 9000, 768}, Product{"q3_k", "fp16", 16, 100, 2048}, Product{"q2_k", "q8_1", 16, 100, 2048}}) {
        SCOPED_TRACE(testing::Message() << p.weight << " x " << p.x << " " << p.n << "x" << p.k);
        const Element plain = std::string(p.x) == "fp16" ? Element::fp16 : Element::bf16;
        const bool plain_x = std::string(p.x) == "bf16" || std::string(p.x) == "fp16";
        const Epilogue epilogue{.x_format = plain_x ? "" : p.x};
        const std::vector<float> values = verify::normal_values(p.m * p.k, 5);
        const Tensor weight(tensor(plain, p.n, p.k, verify::normal_values(p.n * p.k, 6)));
        Context context = Context::cuda(0);
        std::optional<Quantized> q;
        std::optional<Packed> packed;
        if (std::string(p.weight) != "bf16") packed.emplace(pack(context, q.emplace(quantize(context, weight, std::string(p.weight)))));
        const Operand operand = packed ? Operand(*packed) : Operand(weight);
        std::vector<float> all;
        for (const int64_t tokens : {16, 1, 2, 7, 8, 9, 15}) {
            const Tensor x(tensor(plain, tokens, p.k, {values.begin(), values.begin() + tokens * p.k}));
            const lowbit_tensor y = output(Element::fp32, tokens, p.n);
            give_workspace(context, matmul_workspace(context, x, operand, Tensor(y), epilogue));
            matmul(context, x, operand, Tensor(y), epilogue);
            const std::vector<float> results = read(y);
            if (all.empty()) all = results;
            size_t different = 0;
            for (size_t i = 0; i < results.size(); ++i) different += results[i] != all[i];
            EXPECT_EQ(different, 0u) << tokens << " tokens: " << explain(context, x, operand, Tensor(y), epilogue);
        }
        buffers_.clear();
    }
}

// In the kernel that streams the weight where halves are whole tiles, after it where not; the same bits as from the kernel for anything,
// and for every number of tokens.
TEST_F(CudaApi, GateOfFewTokens) {
    for (const Product& p :
         {Product{"int4:g128", "bf16", 16, 304, 1024}, Product{"int4:g128", "bf16", 16, 4512, 640},
          Product{"int4:g32", "fp16", 16, 16, 1056}, Product{"int4:row", "int8:row", 16, 320, 1024},
          Product{"int8:row", "bf16", 16, 304, 1024}, Product{"int8:row", "int8:row", 16, 2320, 512}, Product{"bf16", "bf16", 16, 320, 512},
          Product{"int4:g128", "bf16", 16, 300, 1024}, Product{"int8:row", "int8:row", 16, 77, 512}}) {
        SCOPED_TRACE(testing::Message() << p.weight << " x " << p.x << " " << p.n << "x" << p.k);
        const auto largest = [](const char* format) { return std::string(format).starts_with("int8") ? 127.0f : 7.0f; };
        const Element plain = std::string(p.x) == "fp16" ? Element::fp16 : Element::bf16;
        const bool plain_x = std::string(p.x) == "bf16" || std::string(p.x) == "fp16";
        const std::vector<float> values = integers(p.m * p.k, 5, largest(p.x));
        const Tensor weight(tensor(plain, 2 * p.n, p.k, integers(2 * p.n * p.k, 6, largest(p.weight))));
        const Tensor bias(tensor(Element::fp32, 1, 2 * p.n, integers(2 * p.n, 7)).data, Element::fp32, {2 * p.n}, Device::cuda);
        const Epilogue epilogue{
            .bias = bias, .scale = 1.0f / 1024, .activation = Activation::silu, .x_format = plain_x ? "" : p.x, .gate = true};
        Context context = Context::cuda(0);
        std::optional<Quantized> q;
        std::optional<Packed> packed;
        if (std::string(p.weight) != "bf16") packed.emplace(pack(context, q.emplace(quantize(context, weight, std::string(p.weight)))));
        const Operand operand = packed ? Operand(*packed) : Operand(weight);
        const auto product = [&](int64_t count, const char* kernel) {
            const Tensor x(tensor(plain, count, p.k, {values.begin(), values.begin() + count * p.k}));
            const lowbit_tensor y = output(Element::fp32, count, p.n);
            context.set_kernel(kernel);
            give_workspace(context, matmul_workspace(context, x, operand, Tensor(y), epilogue));
            matmul(context, x, operand, Tensor(y), epilogue);
            const bool streams = cuda::devices().devices[0].major == 9 && !*kernel;
            const std::string text = explain(context, x, operand, Tensor(y), epilogue);
            EXPECT_NE(text.find(streams ? "chosen: decode_" : "chosen: "), std::string::npos) << text;
            EXPECT_NE(text.find(streams && p.n % 16 == 0 ? "gate: in the kernel" : "gate: a pass after"), std::string::npos) << text;
            return read(y);
        };
        const std::vector<float> all = product(16, "cuda_universal");
        for (const int64_t count : {16, 1, 2, 7, 8, 9, 15}) {
            const std::vector<float> results = product(count, "");
            size_t different = 0;
            for (size_t i = 0; i < results.size(); ++i) different += results[i] != all[i];
            EXPECT_EQ(different, 0u) << count << " tokens: the first result is " << results[0] << ", expected " << all[0];
        }
        buffers_.clear();
    }
}

TEST_F(CudaApi, PacksAsTheCpuDoesAndBack) {
    core::Context cpu;
    std::vector<const char*> names(tile_formats.begin(), tile_formats.end());
    names.insert(names.end(), {"int8:row", "q8_1"});
    for (const char* name : names)
        for (const int64_t rows : {1, 17, 64}) {
            const core::Format format = core::Format::parse(name);
            const int64_t columns = tile_columns(format);
            verify::MatrixStorage x(Element::fp32, rows, columns);
            x.fill(verify::normal_values(rows * columns, 3));
            const verify::QuantizedStorage host(format, rows, columns), back(format, rows, columns);
            core::run(core::QuantizeProblem{&cpu, x.tensor(), host.view(), false});
            verify::Mirror mirror(memory_);
            const core::QuantizedView plain = mirror.quantized(host.view()), packed = mirror.packed(plain),
                                      unpacked = mirror.quantized(back.view());
            const int64_t bytes = core::packed_bytes(format, packed.layout, rows, columns);
            std::vector<std::byte> made(static_cast<size_t>(bytes));
            cuda::copy_to_host(memory_, made.data(), packed.codes - 256, bytes);
            core::Buffer expected(core::Allocator::aligned_heap(), bytes);
            std::memset(expected.data(), 0, size_t(bytes));
            const core::QuantizedView planes = core::packed_planes(format, packed.layout, rows, columns, expected.data());
            core::write_packed_header(planes, expected.data());
            core::pack_planes(host.view(), planes);
            EXPECT_EQ(std::memcmp(made.data(), expected.data(), size_t(bytes)), 0) << name << " " << rows;
            cuda::unpack(memory_, packed, unpacked);
            mirror.bring_back(back.view(), unpacked);
            EXPECT_TRUE(back == host) << name << " " << rows << ": " << back.first_difference(host);
        }
}

TEST_F(CudaApi, SaysHowMuchWorkspaceIsMissing) {
    Context context = Context::cuda(0);
    const Tensor x(tensor(Element::bf16, 4, 100, integers(400, 1))), weight(tensor(Element::bf16, 8, 100, integers(800, 2)));
    const lowbit_tensor y = output(Element::fp32, 4, 8);
    const size_t bytes = matmul_workspace(context, x, weight, Tensor(y));
    ASSERT_GT(bytes, 0u);
    try {
        matmul(context, x, weight, Tensor(y));
        FAIL() << "a product without its workspace";
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("lowbit_matmul_workspace"), std::string::npos) << error.what();
    }
    EXPECT_EQ(read(y)[0], -77.0f);
}

// Each product reads the result of the one before: one that did not wait for it would read the numbers that the memory had before.
TEST_F(CudaApi, DependentLaunchChangesNoBit) {
    constexpr int64_t width = 1024;
    struct Chain {
        const char *weight, *x;
        int64_t tokens;
        bool gate = false;
    };
    for (const auto& [name, x_format, tokens, gate] :
         {Chain{"int4:g128", "", 1}, Chain{"int4:g128", "", 5}, Chain{"int4:g128", "", 16}, Chain{"q4_k", "", 2}, Chain{"q4_0", "q8_1", 3},
          Chain{"q6_k", "q8_1", 16}, Chain{"int8:row", "int8:row", 1}, Chain{"int8:row", "int8:row", 16}, Chain{"int4:g128", "int8:row", 4},
          Chain{"fp8_e4m3:row", "fp8_e4m3:row", 2}, Chain{"int8:row", "fp8_e4m3:g128", 2}, Chain{"int4:g128", "", 3, true},
          Chain{"int8:row", "int8:row", 2, true}, Chain{"q4_0", "q8_1", 20, true},
          // Many tokens: those that need no launch before the product, one that orders or turns, one that quantizes, and both.
          Chain{"int4:g128", "", 40}, Chain{"int8:row", "int8:row", 70}, Chain{"int4:row", "int8:row", 100},
          Chain{"int4:g128", "int8:row", 33}, Chain{"q4_0", "q8_1", 64}, Chain{"fp8_e4m3:block128", "fp8_e4m3:g128", 300}}) {
        SCOPED_TRACE(testing::Message() << name << " x " << x_format << " " << tokens << (gate ? " gated" : ""));
        const int64_t length = gate ? 2 : 24;  // what a gate makes is squared by every product
        const int64_t rows = gate ? 2 * width : width;
        Context context = Context::cuda(0);
        const Tensor weight(tensor(Element::bf16, rows, width, integers(rows * width, 2)));
        const Quantized quantized = quantize(context, weight, name);
        const Packed packed = pack(context, quantized);
        const Epilogue epilogue{
            .scale = 1.0f / 128, .activation = gate ? Activation::silu : Activation::none, .x_format = x_format, .gate = gate};
        const lowbit_tensor start = tensor(Element::bf16, tokens, width, integers(tokens * width, 1));
        std::vector<std::vector<float>> ends;
        for (const bool dependent : {false, true, true}) {
            context.set_dependent_launch(dependent);
            std::vector<lowbit_tensor> chain{start};
            for (int64_t i = 0; i < length; ++i) chain.push_back(output(Element::bf16, tokens, width));
            give_workspace(context, matmul_workspace(context, Tensor(chain[0]), packed, Tensor(chain[1]), epilogue));
            for (size_t i = 0; i + 1 < chain.size(); ++i) matmul(context, Tensor(chain[i]), packed, Tensor(chain[i + 1]), epilogue);
            ends.push_back(read(chain.back()));
        }
        EXPECT_TRUE(std::isfinite(ends[0][0])) << ends[0][0];
        EXPECT_EQ(ends[1], ends[0]);
        EXPECT_EQ(ends[2], ends[0]);
    }
}

TEST_F(CudaApi, RefusesMemoryOfTheCpu) {
    Context context = Context::cuda(0);
    std::vector<float> x(64), w(64), y(4);
    EXPECT_THROW(matmul(context, view(x.data(), {2, 32}), view(w.data(), {2, 32}), view(y.data(), {2, 2})), Error);
    EXPECT_THROW(quantize(context, view(x.data(), {2, 32}), "int8:row"), Error);
}

TEST(PackedTiles, AreUndoneByUnpack) {
    core::Context cpu;
    for (const char* name : tile_formats)
        for (const int64_t rows : {0, 1, 16, 35}) {
            const core::Format format = core::Format::parse(name);
            const int64_t columns = tile_columns(format);
            verify::MatrixStorage x(Element::fp32, rows, columns);
            x.fill(verify::normal_values(rows * columns, 3));
            const verify::QuantizedStorage host(format, rows, columns), back(format, rows, columns);
            core::run(core::QuantizeProblem{&cpu, x.tensor(), host.view(), false});
            ASSERT_EQ(core::packed_layout(format, Device::cuda), core::PackedLayout::tiles) << name;
            core::Buffer memory(core::Allocator::aligned_heap(), core::packed_bytes(format, core::PackedLayout::tiles, rows, columns));
            const core::QuantizedView packed = core::packed_planes(format, core::PackedLayout::tiles, rows, columns, memory.data());
            core::pack_planes(host.view(), packed);
            core::unpack_planes(packed, back.view());
            EXPECT_TRUE(back == host) << name << " " << rows << ": " << back.first_difference(host);
        }
}

// Codes and terms stand where the drawing in packed.hpp says: the values read from there are those of the blocks.
TEST(PackedTiles, HoldTheValuesOfBlocks) {
    core::Context cpu;
    constexpr int64_t rows = 19;
    for (const char* name : {"q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k"}) {
        const core::Format format = core::Format::parse(name);
        const core::TileBlock block = core::tile_block(format.element);
        const int64_t columns = tile_columns(format), span = core::ggml_block(format.element).values;
        verify::MatrixStorage x(Element::fp32, rows, columns), expected(Element::fp32, rows, columns);
        x.fill(verify::normal_values(rows * columns, 3));
        const verify::QuantizedStorage host(format, rows, columns);
        core::run(core::QuantizeProblem{&cpu, x.tensor(), host.view(), false});
        core::run(core::DequantizeProblem{&cpu, host.view(), expected.tensor()});
        core::Buffer memory(core::Allocator::aligned_heap(), core::packed_bytes(format, core::PackedLayout::tiles, rows, columns));
        const core::QuantizedView packed = core::packed_planes(format, core::PackedLayout::tiles, rows, columns, memory.data());
        core::pack_planes(host.view(), packed);
        for (int64_t row = 0; row < rows; ++row)
            for (int64_t column = 0; column < columns; ++column) {
                const int inside = int(row % 16), group = int(column % span) / block.group;
                const uint8_t* atom = packed.codes + (row / 16 * ((columns + 63) / 64) + column / 64) * 128 * block.bits;
                const uint8_t* terms =
                    static_cast<uint8_t*>(packed.scales) + (row / 16 * (columns / span) + column / span) * block.term_bytes();
                const auto half = [&](int which) {
                    uint16_t bits;
                    std::memcpy(&bits, terms + core::tile_half_byte(block, inside, which), 2);
                    return core::fp16_to_float(bits);
                };
                const auto integer = [&](int which) { return int(int8_t(terms[core::tile_integer_byte(block, inside, group, which)])); };
                const unsigned bits = core::tile_code(block.bits, inside, int(column % 64)).read(atom);
                const int code = block.bits == 8 ? int(int8_t(bits)) : int(bits) - block.zero;
                float scale = half(0), minimum = block.minimums ? half(1) : 0.0f;
                if (block.integers == 2) scale *= float(integer(0)), minimum *= -float(integer(1));
                if (block.integers == 1 && !block.minimums) scale *= float(integer(0));
                if (block.integers == 1 && block.minimums) scale *= float(integer(0) & 15), minimum *= -float(integer(0) >> 4 & 15);
                const float product = scale * float(code);
                ASSERT_EQ(double(product + minimum), expected.at(row, column)) << name << " " << row << " " << column;
            }
    }
}

}  // namespace
}  // namespace lowbit
