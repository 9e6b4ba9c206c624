// Matrices that own their memory, for tests and `lowbit verify`.
#pragma once
#include <string>
#include <vector>

#include "core/tensor.hpp"

namespace lowbit::verify {

// Planes of exactly the promised sizes, so that a sanitizer sees the first byte beyond.
class QuantizedStorage {
public:
    QuantizedStorage(const core::Format& format, int64_t rows, int64_t columns);
    const core::QuantizedView& view() const { return view_; }
    bool operator==(const QuantizedStorage& other) const;
    std::string first_difference(const QuantizedStorage& other) const;

private:
    std::vector<uint8_t> codes_, scales_, zero_points_;
    std::vector<float> tensor_scale_;
    core::QuantizedView view_;
};

// rows x columns of fp32, fp16, bf16, fp8, int8 or int32 (contiguous, or stored column by column), filled with a pattern that no result
// has.
class MatrixStorage {
public:
    MatrixStorage(Element element, int64_t rows, int64_t columns, bool transposed = false);
    const core::Tensor& tensor() const { return tensor_; }
    void fill(const std::vector<float>& values);
    double at(int64_t row, int64_t column) const;
    // To the bit; any NaN is like another.
    bool same_bits(const MatrixStorage& other, int64_t row, int64_t column) const;

private:
    std::vector<uint8_t> bytes_;
    core::Tensor tensor_;
};

}  // namespace lowbit::verify
