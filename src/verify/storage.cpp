#include "verify/storage.hpp"

#include <cmath>
#include <cstring>

#include "core/status.hpp"

namespace lowbit::verify {
namespace {

constexpr uint8_t poison = 0xa5;

template <class Vector>
auto pointer(Vector& vector) {
    return vector.empty() ? nullptr : vector.data();
}

}  // namespace

QuantizedStorage::QuantizedStorage(const core::Format& format, int64_t rows, int64_t columns) {
    const core::PlaneSizes sizes = format.measure(rows, columns);
    codes_.assign(size_t(sizes.code_bytes), poison);
    scales_.assign(size_t(sizes.scale_bytes), poison);
    zero_points_.assign(size_t(sizes.zero_point_bytes), poison);
    tensor_scale_.assign(size_t(sizes.tensor_scale_bytes / 4), -1e30f);
    view_.format = format;
    view_.rows = rows;
    view_.columns = columns;
    view_.codes = pointer(codes_);
    view_.scales = pointer(scales_);
    view_.zero_points = pointer(zero_points_);
    view_.tensor_scale = pointer(tensor_scale_);
}

bool QuantizedStorage::operator==(const QuantizedStorage& other) const {
    return codes_ == other.codes_ && scales_ == other.scales_ && zero_points_ == other.zero_points_ && tensor_scale_ == other.tensor_scale_;
}

std::string QuantizedStorage::first_difference(const QuantizedStorage& other) const {
    const auto places = [](const char* plane, const auto& mine, const auto& theirs) -> std::string {
        for (size_t i = 0; i < mine.size(); ++i)
            if (mine[i] != theirs[i]) return core::join(plane, "[", i, "] = ", +mine[i], ", reference ", +theirs[i], "; ");
        return "";
    };
    return places("tensor scale", tensor_scale_, other.tensor_scale_) + places("scale bytes", scales_, other.scales_) +
           places("zero points", zero_points_, other.zero_points_) + places("code bytes", codes_, other.codes_);
}

MatrixStorage::MatrixStorage(Element element, int64_t rows, int64_t columns, bool transposed) {
    bytes_.assign(size_t(rows * columns * core::element_bytes(element)), poison);
    tensor_ = {pointer(bytes_), element, rows, columns, transposed ? 1 : columns, transposed ? rows : 1, Device::cpu, 0};
}

void MatrixStorage::fill(const std::vector<float>& values) {
    for (int64_t row = 0; row < tensor_.rows; ++row)
        for (int64_t column = 0; column < tensor_.columns; ++column)
            core::store(tensor_.element, tensor_.data, tensor_.offset(row, column), values[size_t(row * tensor_.columns + column)]);
}

double MatrixStorage::at(int64_t row, int64_t column) const {
    if (tensor_.element == Element::int32) return double(static_cast<const int32_t*>(tensor_.data)[tensor_.offset(row, column)]);
    return double(core::load(tensor_, row, column));
}

bool MatrixStorage::same_bits(const MatrixStorage& other, int64_t row, int64_t column) const {
    const int bytes = core::element_bytes(tensor_.element);
    const auto* mine = static_cast<const uint8_t*>(tensor_.data) + tensor_.offset(row, column) * bytes;
    const auto* theirs = static_cast<const uint8_t*>(other.tensor_.data) + other.tensor_.offset(row, column) * bytes;
    return std::memcmp(mine, theirs, size_t(bytes)) == 0 || (std::isnan(at(row, column)) && std::isnan(other.at(row, column)));
}

}  // namespace lowbit::verify
