// Random fp32 matrices, and how far one is from another.
#pragma once
#include <cstdint>
#include <memory>

#include "lowbit/lowbit.hpp"

namespace lowbit::tools {

struct Matrix {
    Matrix() = default;
    // Not filled: a large matrix is touched first by whoever computes it.
    Matrix(int64_t row_count, int64_t column_count);

    float* row(int64_t index) const { return values.get() + index * columns; }
    int64_t size() const { return rows * columns; }
    Tensor view() const { return first_rows(rows); }
    Tensor first_rows(int64_t count) const { return lowbit::view(values.get(), {count, columns}); }

    int64_t rows = 0, columns = 0;
    std::unique_ptr<float[]> values;
};

// Standard normal numbers. The same seed gives the same numbers, however many threads there are.
void fill_normal(float* values, int64_t count, uint64_t seed);
Matrix normal_matrix(int64_t rows, int64_t columns, uint64_t seed);

// Multiplies about `fraction` of the values, scattered by the seed.
void add_outliers(Matrix& matrix, double fraction, float factor, uint64_t seed);
// Multiplies `count` columns of every row.
void add_outlier_columns(Matrix& matrix, int64_t count, float factor, uint64_t seed);

// ‖found - wanted‖ / ‖wanted‖, gathered piece by piece.
class RelativeError {
public:
    void add(const float* found, const float* wanted, int64_t count);
    double value() const;

private:
    double difference_ = 0, size_ = 0;  // sums of squares
};

}  // namespace lowbit::tools
