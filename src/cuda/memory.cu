#include "cuda/memory.hpp"

#include "cuda/launch.cuh"

namespace lowbit::cuda {
namespace {

// One element of the source per thread; columns fastest, so that a transposed source is read through the cache in tiles of 32 x 32.
__global__ void gather_bytes_kernel(const uint8_t* source, int64_t row_stride, int64_t column_stride, int64_t rows, int64_t columns,
                                    uint8_t* destination) {
    __shared__ uint8_t tile[32][33];
    const int64_t first_column = int64_t(blockIdx.x) * 32;
    for (int64_t first_row = int64_t(blockIdx.y) * 32; first_row < rows; first_row += int64_t(gridDim.y) * 32) {
        __syncthreads();
        for (int r = threadIdx.y; r < 32; r += blockDim.y) {
            // Neighbouring threads read neighbouring bytes, whichever axis is the dense one.
            const bool dense_rows = column_stride <= row_stride;
            const int64_t row = first_row + (dense_rows ? r : threadIdx.x), column = first_column + (dense_rows ? threadIdx.x : r);
            const uint8_t value = row < rows && column < columns ? source[row * row_stride + column * column_stride] : uint8_t(0);
            (dense_rows ? tile[r][threadIdx.x] : tile[threadIdx.x][r]) = value;
        }
        __syncthreads();
        for (int r = threadIdx.y; r < 32; r += blockDim.y)
            if (first_row + r < rows && first_column + threadIdx.x < columns)
                destination[(first_row + r) * columns + first_column + threadIdx.x] = tile[r][threadIdx.x];
    }
}

void transfer(const core::Context& context, void* destination, const void* source, int64_t bytes, cudaMemcpyKind kind) {
    if (bytes == 0) return;
    const DeviceScope scope(context.device_index);
    check(cudaMemcpyAsync(destination, source, size_t(bytes), kind, stream_of(context)), "cudaMemcpyAsync");
}

}  // namespace

core::Allocator device_allocator(int device_index) {
    return {[](void* user, size_t bytes, size_t) -> void* {
                const DeviceScope scope(int(reinterpret_cast<intptr_t>(user)));
                void* memory = nullptr;
                if (cudaMalloc(&memory, bytes) == cudaSuccess) return memory;
                cudaGetLastError();
                return nullptr;
            },
            [](void* user, void* memory, size_t) {
                const DeviceScope scope(int(reinterpret_cast<intptr_t>(user)));
                cudaFree(memory);
            },
            reinterpret_cast<void*>(intptr_t(device_index))};
}

void copy(const core::Context& context, void* destination, const void* source, int64_t bytes) {
    transfer(context, destination, source, bytes, cudaMemcpyDeviceToDevice);
}

void copy_to_device(const core::Context& context, void* destination, const void* source, int64_t bytes) {
    transfer(context, destination, source, bytes, cudaMemcpyHostToDevice);
    wait(context);
}

void copy_to_host(const core::Context& context, void* destination, const void* source, int64_t bytes) {
    transfer(context, destination, source, bytes, cudaMemcpyDeviceToHost);
    wait(context);
}

void wait(const core::Context& context) {
    const DeviceScope scope(context.device_index);
    check(cudaStreamSynchronize(stream_of(context)), "cudaStreamSynchronize");
}

void gather_bytes(const core::Context& context, const core::Tensor& bytes, void* destination) {
    if (bytes.rows == 0 || bytes.columns == 0) return;
    const DeviceScope scope(context.device_index);
    const dim3 grid(blocks_for(bytes.columns, 32), unsigned(std::min<int64_t>(core::ceil_div(bytes.rows, 32), 65535)));
    gather_bytes_kernel<<<grid, dim3(32, 8), 0, stream_of(context)>>>(static_cast<const uint8_t*>(bytes.data), bytes.row_stride,
                                                                      bytes.column_stride, bytes.rows, bytes.columns,
                                                                      static_cast<uint8_t*>(destination));
    check_launch("gather_bytes");
}

}  // namespace lowbit::cuda
