#include "core/threads.hpp"

#include <gtest/gtest.h>

#include <atomic>

#include "core/registry.hpp"
#include "lowbit/lowbit.hpp"

namespace lowbit {
namespace {

TEST(ThreadPool, RunsEveryPieceOnce) {
    for (const int threads : {1, 2, 5}) {
        core::ThreadPool pool(threads);
        EXPECT_EQ(pool.threads(), threads);
        for (const int64_t count : {0, 1, 2, 7, 1000}) {
            std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
            pool.run(count, [&](int64_t i) { ++seen[size_t(i)]; });
            for (const auto& times : seen) EXPECT_EQ(times, 1);
        }
    }
}

TEST(ThreadPool, PassesOnAnExceptionAndStaysUsable) {
    core::ThreadPool pool(3);
    for (int round = 0; round < 20; ++round) {
        EXPECT_THROW(pool.run(100,
                              [](int64_t i) {
                                  if (i == 37) throw std::runtime_error("37");
                              }),
                     std::runtime_error);
        std::atomic<int> sum = 0;
        pool.run(10, [&](int64_t i) { sum += int(i); });
        EXPECT_EQ(sum, 45);
    }
}

TEST(ThreadPool, NestedRunsDoNotDeadlock) {
    core::ThreadPool pool(2);
    std::atomic<int> count = 0;
    pool.run(4, [&](int64_t) { pool.run(5, [&](int64_t) { ++count; }); });
    EXPECT_EQ(count, 20);
}

TEST(ThreadPool, ConcurrentCallersShareOnePool) {
    core::ThreadPool pool(2);
    std::atomic<int64_t> sum = 0;
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 4; ++caller)
        callers.emplace_back([&] {
            for (int round = 0; round < 50; ++round) pool.run(10, [&](int64_t i) { sum += i; });
        });
    for (std::thread& caller : callers) caller.join();
    EXPECT_EQ(sum, 4 * 50 * 45);
}

// One context, one weight, several threads at a time: the whole way from the public API down.
TEST(Concurrent, OneContextServesManyThreads) {
    const Context context = Context::cpu();
    std::vector<float> w(64 * 256), expected(5 * 64);
    for (size_t i = 0; i < w.size(); ++i) w[i] = float(int(i * 7919 % 1009) - 500) / 250;
    std::vector<float> x(w.begin(), w.begin() + 5 * 256);
    for (const char* format : {"int8:row", "int4:g32", "q4_0", "q6_k", "fp8_e4m3:row"}) {
        const Quantized q = quantize(context, view(w.data(), {64, 256}), format);
        matmul(context, view(x.data(), {5, 256}), q, view(expected.data(), {5, 64}));
        std::vector<std::thread> callers;
        std::atomic<int> wrong = 0;
        for (int caller = 0; caller < 4; ++caller)
            callers.emplace_back([&] {
                for (int round = 0; round < 5; ++round) {
                    std::vector<float> y(5 * 64);
                    const Quantized own = quantize(context, view(w.data(), {64, 256}), format);
                    matmul(context, view(x.data(), {5, 256}), own, view(y.data(), {5, 64}));
                    wrong += y != expected;
                    try {
                        matmul(context, view(x.data(), {5, 255}), own, view(y.data(), {5, 64}));
                        ++wrong;
                    } catch (const Error& error) {
                        wrong += std::string(error.what()) != "matmul: weight has k = 256 but x has k = 255";
                    }
                }
            });
        for (std::thread& caller : callers) caller.join();
        EXPECT_EQ(wrong, 0) << format;
    }
}

TEST(Concurrent, ThreadCountMayChangeWhileOthersWork) {
    Context context = Context::cpu();
    std::vector<float> w(64 * 256, 0.5f);
    std::atomic<bool> stop = false;
    std::thread changer([&] {
        for (int i = 0; i < 200; ++i) context.set_threads(1 + i % 3);
        stop = true;
    });
    while (!stop) quantize(context, view(w.data(), {64, 256}), "int8:row");
    changer.join();
}

// Results do not depend on how many threads share the work.
TEST(Threads, AnyNumberGivesTheSameBits) {
    const auto run = [](int threads, const char* x_format, const char* weight_format) {
        core::Context context;
        context.set_threads(threads);
        const auto choose_and_run = [&](auto& problem) {
            core::check(problem);
            core::run(problem);
        };
        std::vector<float> w(131 * 256), x(3 * 256), y(3 * 131);
        for (size_t i = 0; i < w.size(); ++i) w[i] = float(int(i * 7919 % 1009) - 500) / 250;
        for (size_t i = 0; i < x.size(); ++i) x[i] = float(int(i * 104729 % 1013) - 500) / 250;
        const auto quantized = [&](std::vector<float>& values, int64_t rows, const char* name, std::vector<uint8_t>& memory) {
            core::QuantizedView view;
            view.format = core::Format::parse(name);
            view.rows = rows;
            view.columns = 256;
            const core::PlaneSizes sizes = view.format.measure(rows, 256);
            const int64_t scales_at = core::ceil_div(sizes.code_bytes, 64) * 64;
            memory.resize(size_t(scales_at + sizes.scale_bytes + 64));
            view.codes = memory.data();
            if (sizes.scale_bytes) view.scales = memory.data() + scales_at;
            core::QuantizeProblem problem{&context, {values.data(), Element::fp32, rows, 256, 256, 1, Device::cpu, 0}, view, false};
            choose_and_run(problem);
            return view;
        };
        std::vector<uint8_t> w_memory, x_memory;
        core::MatmulProblem problem;
        problem.context = &context;
        problem.weight.is_quantized = problem.x.is_quantized = true;
        problem.weight.quantized = quantized(w, 131, weight_format, w_memory);
        problem.x.quantized = quantized(x, 3, x_format, x_memory);
        problem.y = {y.data(), Element::fp32, 3, 131, 131, 1, Device::cpu, 0};
        choose_and_run(problem);
        return y;
    };
    for (const auto& [x, weight] :
         {std::pair{"int8:row", "int8:row"}, {"q8_1", "q4_0"}, {"fp16", "int4:g64"}, {"bf16", "q6_k"}, {"fp16", "int1:tensor"}})
        for (const int threads : {2, 3, 8})
            EXPECT_EQ(run(1, x, weight), run(threads, x, weight)) << x << " x " << weight << ", " << threads << " threads";
}

}  // namespace
}  // namespace lowbit
