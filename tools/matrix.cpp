#include "matrix.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/status.hpp"
#include "core/threads.hpp"

namespace lowbit::tools {
namespace {

// splitmix64: the bits of place `index` in the sequence of a seed.
uint64_t random_bits(uint64_t seed, uint64_t index) {
    uint64_t z = seed * 0xd1342543de82ef95u + (index + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

// Box and Muller: two normal numbers from one draw.
struct Pair {
    float first, second;
};
Pair normal_pair(uint64_t seed, uint64_t index) {
    const uint64_t bits = random_bits(seed, index);
    const float uniform = (float(bits >> 40) + 1) * 0x1p-24f;  // (0, 1]
    const float angle = float(bits & 0xffffff) * 0x1p-24f * (2 * std::numbers::pi_v<float>);
    const float radius = std::sqrt(-2 * std::log(uniform));
    return {radius * std::cos(angle), radius * std::sin(angle)};
}

}  // namespace

Matrix::Matrix(int64_t row_count, int64_t column_count) : rows(row_count), columns(column_count) {
    core::require(rows >= 0 && columns >= 0, "shape ", rows, " x ", columns, "; sizes cannot be negative");
    const int64_t count = core::checked_multiply(rows, columns, "shape");
    core::checked_multiply(count, sizeof(float), "bytes of an fp32 matrix");
    values = std::make_unique_for_overwrite<float[]>(size_t(count));
}

void fill_normal(float* values, int64_t count, uint64_t seed) {
    constexpr int64_t piece = 1 << 18;  // even
    core::ThreadPool(core::available_threads()).run(core::ceil_div(count, piece), [&](int64_t task) {
        const int64_t end = std::min(count, (task + 1) * piece);
        for (int64_t i = task * piece; i < end; i += 2) {
            const Pair pair = normal_pair(seed, uint64_t(i / 2));
            values[i] = pair.first;
            if (i + 1 < end) values[i + 1] = pair.second;
        }
    });
}

Matrix normal_matrix(int64_t rows, int64_t columns, uint64_t seed) {
    Matrix matrix(rows, columns);
    fill_normal(matrix.values.get(), matrix.size(), seed);
    return matrix;
}

void add_outliers(Matrix& matrix, double fraction, float factor, uint64_t seed) {
    const auto count = uint64_t(double(matrix.size()) * fraction);
    for (uint64_t i = 0; i < count; ++i) matrix.values[random_bits(seed, i) % uint64_t(matrix.size())] *= factor;
}

void add_outlier_columns(Matrix& matrix, int64_t count, float factor, uint64_t seed) {
    if (matrix.columns == 0) return;
    for (int64_t i = 0; i < count; ++i) {
        const auto column = int64_t(random_bits(seed, uint64_t(i)) % uint64_t(matrix.columns));
        for (int64_t row = 0; row < matrix.rows; ++row) matrix.row(row)[column] *= factor;
    }
}

void RelativeError::add(const float* found, const float* wanted, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
        const double difference = double(found[i]) - double(wanted[i]);
        difference_ += difference * difference;
        size_ += double(wanted[i]) * double(wanted[i]);
    }
}

double RelativeError::value() const {
    if (difference_ == 0) return 0;
    return size_ == 0 ? INFINITY : std::sqrt(difference_ / size_);
}

}  // namespace lowbit::tools
