// Bad input never crashes: a status, a text that names the argument and its value, and outputs untouched.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "lowbit/lowbit.hpp"

namespace lowbit {
namespace {

constexpr float untouched = -77.25f;

void expect_failure(lowbit_status status, lowbit_status expected, const std::string& mentions) {
    EXPECT_EQ(status, expected) << mentions;
    EXPECT_NE(std::string(lowbit_last_error()).find(mentions), std::string::npos)
        << "wanted \"" << mentions << "\", got \"" << lowbit_last_error() << '"';
}

// A small good product; each row of a table spoils one thing.
class BadMatmul : public testing::Test {
protected:
    void SetUp() override {
        x_tensor = lowbit_matrix(x.data(), LOWBIT_FP32, 3, 32);
        w_tensor = lowbit_matrix(w.data(), LOWBIT_FP32, 4, 32);
        bias_tensor = lowbit_vector(bias.data(), LOWBIT_FP32, 4);
        call.x.tensor = &x_tensor;
        call.weight.tensor = &w_tensor;
        call.y = lowbit_matrix(y.data(), LOWBIT_FP32, 3, 4);
    }
    void expect(lowbit_status expected, const std::string& mentions) {
        expect_failure(lowbit_matmul(context.c(), &call), expected, mentions);
        for (const float value : y) EXPECT_EQ(value, untouched) << mentions;
        char text[16];
        EXPECT_EQ(lowbit_explain(context.c(), &call, text, sizeof(text), nullptr), expected);
    }

    Context context = Context::cpu();
    std::vector<float> x = std::vector<float>(96, 1.0f), w = std::vector<float>(128, 2.0f), y = std::vector<float>(12, untouched),
                       bias = std::vector<float>(4, 0.5f);
    lowbit_tensor x_tensor = LOWBIT_TENSOR_INIT, w_tensor = LOWBIT_TENSOR_INIT, bias_tensor = LOWBIT_TENSOR_INIT;
    lowbit_matmul_args call = LOWBIT_MATMUL_ARGS_INIT;
};

TEST_F(BadMatmul, GoodOneWorks) {
    call.bias = &bias_tensor;
    ASSERT_EQ(lowbit_matmul(context.c(), &call), LOWBIT_OK) << lowbit_last_error();
    for (const float value : y) EXPECT_EQ(value, 64.5f);
}

TEST_F(BadMatmul, NullPointers) {
    expect_failure(lowbit_matmul(nullptr, &call), LOWBIT_INVALID_ARGUMENT, "context is a null pointer");
    expect_failure(lowbit_matmul(context.c(), nullptr), LOWBIT_INVALID_ARGUMENT, "args is a null pointer");
    const auto spoil = [&](void** pointer, const char* mentions) {
        void* kept = *pointer;
        *pointer = nullptr;
        expect(LOWBIT_INVALID_ARGUMENT, mentions);
        *pointer = kept;
    };
    spoil(&x_tensor.data, "x is a null pointer");
    spoil(&w_tensor.data, "weight is a null pointer");
    spoil(&call.y.data, "y is a null pointer");
    call.x.tensor = nullptr;
    expect(LOWBIT_INVALID_ARGUMENT, "x sets 0 of tensor, quantized and packed");
}

struct Spoiled {
    const char* mentions;
    std::function<void(lowbit_matmul_args&, lowbit_tensor& x, lowbit_tensor& w, lowbit_tensor& bias)> spoil;
};

TEST_F(BadMatmul, EverySpoiledArgumentIsNamed) {
    const int64_t huge = std::numeric_limits<int64_t>::max();
    const std::vector<Spoiled> table = {
        {"weight has k = 32 but x has k = 31", [](auto&, auto& a, auto&, auto&) { a.shape[1] = 31; }},
        {"y is 3 x 4 but x . weight^T is 2 x 4", [](auto&, auto& a, auto&, auto&) { a.shape[0] = 2; }},
        {"x has shape -3 x 32", [](auto&, auto& a, auto&, auto&) { a.shape[0] = -3; }},
        {"does not fit in 64 bits", [huge](auto&, auto& a, auto&, auto&) { a.shape[0] = huge, a.strides[0] = huge; }},
        {"x has strides -32, 1", [](auto&, auto& a, auto&, auto&) { a.strides[0] = -32; }},
        {"not aligned to its 4-byte elements", [](auto&, auto& a, auto&, auto&) { a.data = static_cast<char*>(a.data) + 1; }},
        {"x has element type 77", [](auto&, auto& a, auto&, auto&) { a.element = lowbit_element(77); }},
        {"x is int32; use fp32, fp16 or bf16", [](auto&, auto& a, auto&, auto&) { a.element = LOWBIT_INT32; }},
        {"weight has element type 6", [](auto&, auto&, auto& b, auto&) { b.element = LOWBIT_INT4; }},
        {"x has rank 3", [](auto&, auto& a, auto&, auto&) { a.rank = 3; }},
        {"x.size = 0", [](auto&, auto& a, auto&, auto&) { a.size = 0; }},
        {"args.size = 3", [](auto& args, auto&, auto&, auto&) { args.size = 3; }},
        {"x is on cuda:0, but the context is on cpu:0", [](auto&, auto& a, auto&, auto&) { a.device = LOWBIT_CUDA; }},
        {"y has strides 2, 1 with shape 3 x 4, so its elements overlap", [](auto& args, auto&, auto&, auto&) { args.y.strides[0] = 2; }},
        {"y has strides 0, 1", [](auto& args, auto&, auto&, auto&) { args.y.strides[0] = 0; }},
        {"y overlaps x", [](auto& args, auto& a, auto&, auto&) { a.data = args.y.data, a.strides[0] = 0, a.strides[1] = 0; }},
        {"y overlaps weight",
         [](auto& args, auto&, auto& b, auto&) { b.data = static_cast<float*>(args.y.data) + 11, b.strides[0] = b.strides[1] = 0; }},
        {"bias has 3 values, but y has N = 4", [](auto& args, auto&, auto&, auto& c) { c.shape[0] = 3, args.bias = &c; }},
        {"bias is int32", [](auto& args, auto&, auto&, auto& c) { c.element = LOWBIT_INT32, args.bias = &c; }},
        {"row_scale has 4 values, but y has M = 3", [](auto& args, auto&, auto&, auto& c) { args.row_scale = &c; }},
        {"column_scale is fp16; use fp32", [](auto& args, auto&, auto&, auto& c) { c.element = LOWBIT_FP16, args.column_scale = &c; }},
        {"activation 9 is unknown", [](auto& args, auto&, auto&, auto&) { args.activation = lowbit_activation(9); }},
        {"y is int32, but x is fp32", [](auto& args, auto&, auto&, auto&) { args.y.element = LOWBIT_INT32; }},
        {"y is fp8_e4m3", [](auto& args, auto&, auto&, auto&) { args.y.element = LOWBIT_FP8_E4M3; }},
        {"output_scale = 0", [](auto& args, auto&, auto&, auto&) { args.y.element = LOWBIT_INT8, args.output_scale = 0; }},
        {"beta = 0.5 but y is int8", [](auto& args, auto&, auto&, auto&) { args.y.element = LOWBIT_INT8, args.beta = 0.5f; }},
        {"beta = 0.5 but y is int32", [](auto& args, auto&, auto&, auto&) { args.y.element = LOWBIT_INT32, args.beta = 0.5f; }},
        {"gate = 2; use 0 or 1", [](auto& args, auto&, auto&, auto&) { args.gate = 2; }},
        {"which a gate makes 3 x 2", [](auto& args, auto&, auto&, auto&) { args.gate = 1; }},
        {"weight has 3 rows, but a gate takes two halves", [](auto& args, auto&, auto& b, auto&) { args.gate = 1, b.shape[0] = 3; }},
        {"bias has 2 values, but y has 2N = 4",
         [](auto& args, auto&, auto&, auto& c) { args.gate = 1, args.y.shape[1] = 2, c.shape[0] = 2, args.bias = &c; }},
        {"column_scale has 2 values, but y has 2N = 4",
         [](auto& args, auto&, auto&, auto& c) { args.gate = 1, args.y.shape[1] = 2, c.shape[0] = 2, args.column_scale = &c; }},
        {"unknown format \"int7\"", [](auto& args, auto&, auto&, auto&) { args.x_format = "int7"; }},
    };
    const lowbit_matmul_args good = call;
    const lowbit_tensor good_x = x_tensor, good_w = w_tensor, good_bias = bias_tensor;
    for (const Spoiled& row : table) {
        row.spoil(call, x_tensor, w_tensor, bias_tensor);
        expect(LOWBIT_INVALID_ARGUMENT, row.mentions);
        call = good, x_tensor = good_x, w_tensor = good_w, bias_tensor = good_bias;
    }
}

TEST_F(BadMatmul, RawProductsSayUpToWhichK) {
    std::vector<int8_t> a(131072, 1), b(131072, 1);
    std::vector<int32_t> c(1, 5);
    expect_failure(lowbit_int8_matmul(context.c(), a.data(), b.data(), c.data(), LOWBIT_INT32, 1, 1, 131072, 1, 1, 1),
                   LOWBIT_INVALID_ARGUMENT, "use K <= 131071");
    EXPECT_EQ(c[0], 5);
    ASSERT_EQ(lowbit_int8_matmul(context.c(), a.data(), b.data(), c.data(), LOWBIT_INT32, 1, 1, 131071, 1, 1, 1), LOWBIT_OK)
        << lowbit_last_error();
    EXPECT_EQ(c[0], 131071);
}

TEST_F(BadMatmul, RawProductsTakeNoGate) {
    std::vector<int8_t> a(96, 1), b(128, 1);
    std::vector<int32_t> c(6, 5);
    x_tensor = lowbit_matrix(a.data(), LOWBIT_INT8, 3, 32), w_tensor = lowbit_matrix(b.data(), LOWBIT_INT8, 4, 32);
    call.y = lowbit_matrix(c.data(), LOWBIT_INT32, 3, 2);
    call.gate = 1;
    expect(LOWBIT_INVALID_ARGUMENT, "it takes no scale, bias, activation, gate or beta");
    for (const int32_t value : c) EXPECT_EQ(value, 5);
}

TEST(CApi, NewerAndOlderStructs) {
    const Context context = Context::cpu();
    std::vector<float> x(32, 1.0f), w(32, 2.0f), y(1);
    lowbit_tensor xt = lowbit_matrix(x.data(), LOWBIT_FP32, 1, 32), wt = lowbit_matrix(w.data(), LOWBIT_FP32, 1, 32);
    struct Newer {
        lowbit_matmul_args args = LOWBIT_MATMUL_ARGS_INIT;
        uint64_t unknown = 0;
    } newer;
    newer.args.size = sizeof(newer);
    newer.args.x.tensor = &xt;
    newer.args.weight.tensor = &wt;
    newer.args.y = lowbit_matrix(y.data(), LOWBIT_FP32, 1, 1);
    EXPECT_EQ(lowbit_matmul(context.c(), &newer.args), LOWBIT_OK);
    EXPECT_EQ(y[0], 64.0f);
    newer.unknown = 1;
    expect_failure(lowbit_matmul(context.c(), &newer.args), LOWBIT_INVALID_ARGUMENT, "does not know");
    // An older caller's struct ends before beta, or x_format.
    newer.args.beta = 7.0f;
    newer.args.size = offsetof(lowbit_matmul_args, beta);
    EXPECT_EQ(lowbit_matmul(context.c(), &newer.args), LOWBIT_OK) << lowbit_last_error();
    EXPECT_EQ(y[0], 64.0f);
    newer.args.size = offsetof(lowbit_matmul_args, x_format);
    newer.args.x_format = "not looked at";
    EXPECT_EQ(lowbit_matmul(context.c(), &newer.args), LOWBIT_OK) << lowbit_last_error();
}

TEST(CApi, QuantizeRefusesAndLeavesOutputsAlone) {
    const Context context = Context::cpu();
    std::vector<float> x(64, 1.0f);
    std::vector<uint8_t> codes(64, 0x5a);
    std::vector<float> scales(2, untouched);
    lowbit_quantize_args args = LOWBIT_QUANTIZE_ARGS_INIT;
    args.x = lowbit_matrix(x.data(), LOWBIT_FP32, 2, 32);
    args.format = "int8:row";
    lowbit_quantized_view view = LOWBIT_QUANTIZED_VIEW_INIT;
    ASSERT_EQ(lowbit_format_parse("int8:row", &view.format), LOWBIT_OK);
    view.rows = 2, view.columns = 32, view.codes = codes.data(), view.scales = scales.data();
    const auto refuse = [&](const char* mentions) {
        expect_failure(lowbit_quantize_into(context.c(), &args, &view), LOWBIT_INVALID_ARGUMENT, mentions);
        EXPECT_EQ(codes, std::vector<uint8_t>(64, 0x5a));
        EXPECT_EQ(scales, std::vector<float>(2, untouched));
    };
    const auto good_args = args;
    const auto good_view = view;
    args.format = nullptr, refuse("format is a null pointer"), args = good_args;
    args.format = "int8:tensor", refuse("destination has format int8:row but the arguments ask for int8:tensor"), args = good_args;
    view.rows = 3, refuse("destination is 3 x 32 but x is 2 x 32"), view = good_view;
    view.codes = nullptr, refuse("destination.codes is a null pointer"), view = good_view;
    view.scales = nullptr, refuse("destination.scales is a null pointer"), view = good_view;
    view.scales = codes.data() + 1, refuse("not aligned to 4 bytes"), view = good_view;
    view.codes = x.data(), refuse("destination.codes overlaps x"), view = good_view;
    view.codes = scales.data(), refuse("overlaps"), view = good_view;
    view.columns = std::numeric_limits<int64_t>::max(), refuse("does not fit in 64 bits"), view = good_view;
    args.zero_points = codes.data(), refuse("zero_points are given"), args = good_args;
    args.x.element = LOWBIT_INT8, refuse("x is int8; use fp32, fp16 or bf16"), args = good_args;
    lowbit_quantized* handle = nullptr;
    args.format = "q4_k";
    expect_failure(lowbit_quantize(context.c(), &args, &handle), LOWBIT_INVALID_ARGUMENT,
                   "blocks of 256 values, which do not divide K = 32; pad K to 256");
    EXPECT_EQ(handle, nullptr);
    args.format = "fp16", args.scales = scales.data();
    expect_failure(lowbit_quantize(context.c(), &args, &handle), LOWBIT_INVALID_ARGUMENT, "scales are given, but fp16 has none");
    const uint8_t zero_points[2] = {3, 16};
    args.format = "uint4:row:asym", args.zero_points = zero_points;
    expect_failure(lowbit_quantize(context.c(), &args, &handle), LOWBIT_INVALID_ARGUMENT, "zero_points[1] = 16; uint4 takes 0 to 15");
    args = good_args;
    ASSERT_EQ(lowbit_quantize_into(context.c(), &args, &view), LOWBIT_OK) << lowbit_last_error();
    EXPECT_EQ(codes, std::vector<uint8_t>(64, 127));
}

TEST(CApi, StaticScalesAreUsedAsTheyAre) {
    const Context context = Context::cpu();
    const std::vector<float> x = {1, -1, 0.26f, 100};
    const float scale = 0.5f;
    const Quantized q = quantize(context, view(x.data(), {1, 4}), "int8:tensor", {.scales = &scale});
    const auto* codes = static_cast<const int8_t*>(q.view().codes);
    EXPECT_EQ(std::vector<int>(codes, codes + 4), (std::vector<int>{2, -2, 1, 127}));
    const uint8_t zero_point = 10;
    const Quantized u = quantize(context, view(x.data(), {1, 4}), "uint8:tensor:asym", {.scales = &scale, .zero_points = &zero_point});
    const auto* unsigned_codes = static_cast<const uint8_t*>(u.view().codes);
    EXPECT_EQ(std::vector<int>(unsigned_codes, unsigned_codes + 4), (std::vector<int>{12, 8, 11, 210}));
}

TEST(CApi, KernelsCanBeForced) {
    Context context = Context::cpu();
    std::vector<float> x(64, 1.0f), w(64, 2.0f), y(1);
    const auto explained = [&] { return explain(context, view(x.data(), {1, 64}), view(w.data(), {1, 64}), view(y.data(), {1, 1})); };
    EXPECT_NE(explained().find("chosen: cpu_"), std::string::npos);
    context.set_kernel("reference");
    EXPECT_EQ(explained(), "chosen: reference");
    EXPECT_THROW(context.set_kernel("nonsense"), Error);
    context.set_kernel("cpu_portable_int8");
    EXPECT_EQ(explained(), "chosen: none; skipped: cpu_portable_int8 (for integer codes on both sides)");
    EXPECT_THROW(matmul(context, view(x.data(), {1, 64}), view(w.data(), {1, 64}), view(y.data(), {1, 1})), Error);
    quantize(context, view(x.data(), {1, 64}), "int8:row");  // another verb: free to choose
    context.set_kernel("");
    EXPECT_NE(explained().find("chosen: cpu_"), std::string::npos);
    setenv("LOWBIT_KERNEL", "reference", 1);
    EXPECT_EQ(explained(), "chosen: reference");
    setenv("LOWBIT_KERNEL", "nonsense", 1);
    EXPECT_THROW(explained(), Error);
    unsetenv("LOWBIT_KERNEL");
}

TEST(CApi, VerboseSaysWhatRan) {
    const Context context = Context::cpu();
    std::vector<float> x(64, 1.0f);
    setenv("LOWBIT_VERBOSE", "1", 1);
    testing::internal::CaptureStderr();
    quantize(context, view(x.data(), {1, 64}), "nf4:g64");
    const std::string printed = testing::internal::GetCapturedStderr();
    unsetenv("LOWBIT_VERBOSE");
    EXPECT_NE(printed.find("lowbit: quantize: chosen: cpu_quantize_rows; skipped: "), std::string::npos) << printed;
    testing::internal::CaptureStderr();
    quantize(context, view(x.data(), {1, 64}), "nf4:g64");
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(CApi, MemoryComesFromTheCallersAllocator) {
    static int64_t held = 0, calls = 0;
    held = calls = 0;
    Context context = Context::cpu();
    lowbit_allocator allocator{sizeof(lowbit_allocator),
                               [](void*, size_t bytes, size_t alignment) -> void* {
                                   ++calls, held += int64_t(bytes);
                                   return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
                               },
                               [](void*, void* memory, size_t bytes) { held -= int64_t(bytes), std::free(memory); }, nullptr};
    context.set_allocator(allocator);
    std::vector<float> x(64, 1.0f);
    {
        const Quantized q = quantize(context, view(x.data(), {1, 64}), "int8:row");
        const Packed p = pack(context, q);
        EXPECT_GE(held, q.bytes() + p.bytes());
    }
    EXPECT_EQ(held, 0);
    EXPECT_GE(calls, 2);
    allocator.allocate = [](void*, size_t, size_t) -> void* { return nullptr; };
    context.set_allocator(allocator);
    try {
        quantize(context, view(x.data(), {1, 64}), "int8:row");
        ADD_FAILURE();
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), Status::out_of_memory);
    }
}

TEST(CApi, StatusesAndTexts) {
    EXPECT_STREQ(lowbit_version(), LOWBIT_VERSION_STRING);
    EXPECT_STREQ(lowbit_status_string(LOWBIT_OK), "ok");
    EXPECT_STREQ(lowbit_status_string(LOWBIT_UNSUPPORTED), "unsupported");
    EXPECT_STREQ(lowbit_status_string(lowbit_status(99)), "unknown status");
    lowbit_context_destroy(nullptr);
    lowbit_quantized_destroy(nullptr);
    lowbit_packed_destroy(nullptr);
    char text[8];
    size_t length = 0;
    EXPECT_EQ(lowbit_info(text, sizeof(text), &length), LOWBIT_OK);
    EXPECT_GT(length, 100u);
    EXPECT_EQ(std::string(text), info().substr(0, 7));
    EXPECT_EQ(lowbit_info(nullptr, 5, nullptr), LOWBIT_INVALID_ARGUMENT);
    lowbit_context* context = nullptr;
    ASSERT_EQ(lowbit_context_create_cpu(&context), LOWBIT_OK);
    expect_failure(lowbit_context_set_threads(context, -2), LOWBIT_INVALID_ARGUMENT, "threads = -2");
    lowbit_context_destroy(context);
}

TEST(CApi, DependentLaunchIsAnOptionOfTheContext) {
    Context context = Context::cpu();
    EXPECT_FALSE(context.dependent_launch());
    for (const bool enabled : {true, true, false, true}) {
        context.set_dependent_launch(enabled);
        EXPECT_EQ(context.dependent_launch(), enabled);
    }
    expect_failure(lowbit_context_set_dependent_launch(context.c(), 2), LOWBIT_INVALID_ARGUMENT, "enabled = 2; use 0 or 1");
    EXPECT_TRUE(context.dependent_launch());
    EXPECT_FALSE(Context::cpu().dependent_launch()) << "two contexts share nothing";
    int32_t enabled = -7;
    expect_failure(lowbit_context_set_dependent_launch(nullptr, 1), LOWBIT_INVALID_ARGUMENT, "context is a null pointer");
    expect_failure(lowbit_context_get_dependent_launch(nullptr, &enabled), LOWBIT_INVALID_ARGUMENT, "context is a null pointer");
    expect_failure(lowbit_context_get_dependent_launch(context.c(), nullptr), LOWBIT_INVALID_ARGUMENT, "enabled is a null pointer");
    EXPECT_EQ(enabled, -7);
}

}  // namespace
}  // namespace lowbit
