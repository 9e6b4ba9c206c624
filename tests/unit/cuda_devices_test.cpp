#include <gtest/gtest.h>

#include "cuda/devices.hpp"
#include "lowbit/lowbit.hpp"

namespace lowbit {
namespace {

TEST(Cuda, DevicesAreFoundOrTheReasonIsGiven) {
    const cuda::DeviceList list = cuda::devices();
    EXPECT_EQ(list.devices.empty(), !list.problem.empty()) << list.problem;
    try {
        Context::cuda(int(list.devices.size()));
        ADD_FAILURE() << "a device that is not there";
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), list.devices.empty() ? Status::unsupported : Status::invalid_argument) << error.what();
    }
}

TEST(CudaDevice, ContextOnTheFirstDevice) {
    const cuda::DeviceList list = cuda::devices();
    if (list.devices.empty()) GTEST_SKIP() << list.problem;
    const cuda::DeviceInfo& device = list.devices.front();
    EXPECT_FALSE(device.name.empty());
    EXPECT_GE(device.major * 10 + device.minor, 75);
    EXPECT_GT(device.multiprocessors, 0);
    EXPECT_GT(device.memory_bytes, int64_t(1) << 30);
    EXPECT_GT(device.l2_bytes, 0);
    const Context context = Context::cuda(0);
    // Host memory does not belong to a CUDA context.
    std::vector<float> x(64, 1.0f);
    try {
        quantize(context, view(x.data(), {1, 64}), "int8:row");
        ADD_FAILURE();
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("x is on cpu:0, but the context is on cuda:0"), std::string::npos) << error.what();
    }
}

}  // namespace
}  // namespace lowbit
