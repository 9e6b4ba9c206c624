// How quantized matrices live in a safetensors file. A tensor NAME becomes one tensor per plane, and the metadata says what they are:
//
//     NAME.codes         [rows, row bytes]             U8; I8 for int8, F8_E4M3 and F8_E5M2 for those elements
//     NAME.scales        [scale rows, scale columns]   F32, F16, BF16, F8_E8M0 or F8_E4M3; absent where a format has none
//     NAME.zero_points   as the scales                 U8; only for asymmetric formats
//     NAME.tensor_scale  [1]                           F32; only above scales in F8_E4M3
//
//     metadata  "lowbit"       "1"     the version of this layout
//               "lowbit.NAME"  {"format":"int4:g128","shape":[4096,4096],"dtype":"BF16"}     what was quantized
//
// The matrix of a shape has as many columns as its last size; all sizes before it multiply to the rows.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.hpp"
#include "lowbit/types.hpp"

namespace lowbit::io {

struct Plane {
    std::string dtype;
    std::vector<int64_t> shape;
    bool operator==(const Plane&) const = default;
};

// The planes that a format needs for one matrix.
struct PlaneSet {
    Plane codes;
    std::optional<Plane> scales;
    std::optional<Plane> zero_points;
    std::optional<Plane> tensor_scale;
};

// The dtypes that planes have in a file.
std::string codes_dtype(Element element);
// Throws for a type that scales cannot have.
std::string scales_dtype(Element scale);

struct MatrixShape {
    int64_t rows = 0, columns = 0;
};
MatrixShape matrix_shape(const std::vector<int64_t>& shape);

// What the format, given as its short string, needs for rows x columns. Formats belong to core; this folder only asks.
using PlanesOfFormat = std::function<PlaneSet(const std::string& format, int64_t rows, int64_t columns)>;

struct QuantizedEntry {
    std::string name;
    std::string format;
    std::vector<int64_t> shape;  // of the tensor that was quantized
    std::string dtype;           // likewise
    // Into the tensors() of the file, which must outlive the entry; nullptr where the plane is absent.
    const TensorInfo* codes = nullptr;
    const TensorInfo* scales = nullptr;
    const TensorInfo* zero_points = nullptr;
    const TensorInfo* tensor_scale = nullptr;
};

// The quantized tensors of a file, by name; none in a file without our metadata. Planes must fit each other, and with `planes_of` they must
// be exactly those of the format.
std::vector<QuantizedEntry> list_quantized(const SafetensorsFile& file, const PlanesOfFormat& planes_of = nullptr);

// The names of the planes, for find() and append().
std::string codes_name(std::string_view name);
std::string scales_name(std::string_view name);
std::string zero_points_name(std::string_view name);
std::string tensor_scale_name(std::string_view name);

struct QuantizedDeclaration {
    std::string name;
    std::string format;
    std::vector<int64_t> shape;
    std::string dtype;
    PlaneSet planes;
};

// Adds the planes and the metadata to a plan for SafetensorsWriter.
void declare_quantized(SafetensorsPlan& plan, const QuantizedDeclaration& declaration);

}  // namespace lowbit::io
