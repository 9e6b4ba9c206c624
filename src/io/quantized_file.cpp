#include "io/quantized_file.hpp"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "core/status.hpp"
#include "io/json.hpp"
#include "io/safetensors_dtype.hpp"

namespace lowbit::io {
namespace {

constexpr const char* version_key = "lowbit";
constexpr const char* version = "1";
constexpr std::string_view tensor_key_prefix = "lowbit.";

bool is_one_of(std::string_view dtype, std::initializer_list<std::string_view> accepted) {
    return std::ranges::find(accepted, dtype) != accepted.end();
}

std::string describe(const Plane& plane) { return plane.dtype + " " + shape_text(plane.shape); }

std::optional<Plane> plane_of(const TensorInfo* info) {
    if (!info) return std::nullopt;
    return Plane{info->dtype, info->shape};
}

int64_t rows_of(const std::vector<int64_t>& shape, Status status, const std::string& subject) {
    try {
        return matrix_shape(shape).rows;
    } catch (const core::Failure& failure) {
        core::fail(status, subject, ": ", failure.what());
    }
}

// What holds for every format. Reader and writer share it, so whatever is declared can be listed again.
void check_planes(const PlaneSet& planes, const std::vector<int64_t>& shape, Status status, const std::string& subject) {
    const auto refuse = [&](const char* plane, const Plane& found, const auto&... accepted) {
        core::fail(status, subject, ": plane ", plane, " is ", describe(found), "; use ", accepted...);
    };
    const Plane& codes = planes.codes;
    const int64_t rows = rows_of(shape, status, subject);
    if (!is_one_of(codes.dtype, {"U8", "I8", "F8_E4M3", "F8_E5M2"}) || codes.shape.size() != 2 || codes.shape[0] != rows)
        refuse("codes", codes, "U8, I8, F8_E4M3 or F8_E5M2 with the shape [", rows, ", row bytes], for the rows of ", shape_text(shape));
    const Plane* scales = planes.scales ? &*planes.scales : nullptr;
    if (scales && (!is_one_of(scales->dtype, {"F32", "F16", "BF16", "F8_E8M0", "F8_E4M3"}) || scales->shape.size() != 2))
        refuse("scales", *scales, "F32, F16, BF16, F8_E8M0 or F8_E4M3 with two sizes");
    for (const auto& [plane, name] : {std::pair(&planes.zero_points, "zero_points"), std::pair(&planes.tensor_scale, "tensor_scale")})
        if (*plane && !scales) core::fail(status, subject, ": has a plane ", name, " but no plane scales");
    if (planes.zero_points && *planes.zero_points != Plane{"U8", scales->shape})
        refuse("zero_points", *planes.zero_points, "U8 ", shape_text(scales->shape), ", as the scales");
    if (planes.tensor_scale && *planes.tensor_scale != Plane{"F32", {1}}) refuse("tensor_scale", *planes.tensor_scale, "F32 [1]");
}

void check_plane_of_format(const std::optional<Plane>& found, const std::optional<Plane>& needed, const std::string& tensor,
                           const QuantizedEntry& entry, const std::string& subject) {
    if (found == needed) return;
    const std::string format = printable(entry.format) + " of " + shape_text(entry.shape);
    if (!found)
        core::fail(Status::io_error, subject, ": tensor ", printable(tensor), " is missing; ", format, " needs it as ", describe(*needed));
    if (!needed) core::fail(Status::io_error, subject, ": tensor ", printable(tensor), " is there, but ", format, " has no such plane");
    core::fail(Status::io_error, subject, ": tensor ", printable(tensor), " is ", describe(*found), "; ", format, " needs ",
               describe(*needed));
}

void check_format(const PlanesOfFormat& planes_of, const QuantizedEntry& entry, const PlaneSet& found, const std::string& subject) {
    PlaneSet needed;
    try {
        const MatrixShape matrix = matrix_shape(entry.shape);
        needed = planes_of(entry.format, matrix.rows, matrix.columns);
    } catch (const core::Failure& failure) {
        core::fail(Status::io_error, subject, ": ", failure.what());
    }
    check_plane_of_format(found.codes, needed.codes, codes_name(entry.name), entry, subject);
    check_plane_of_format(found.scales, needed.scales, scales_name(entry.name), entry, subject);
    check_plane_of_format(found.zero_points, needed.zero_points, zero_points_name(entry.name), entry, subject);
    check_plane_of_format(found.tensor_scale, needed.tensor_scale, tensor_scale_name(entry.name), entry, subject);
}

void check_description(const std::string& format, const std::string& dtype, Status status, const std::string& subject) {
    if (format.empty()) core::fail(status, subject, ": the format is empty");
    if (dtype_bits(dtype) == 0) core::fail(status, subject, ": unknown dtype ", printable(dtype), "; use one of ", dtype_list());
}

// {"format": "int4:g128", "shape": [4096, 4096], "dtype": "BF16"}, in any order.
void read_description(QuantizedEntry& entry, std::string_view json, const std::string& subject) {
    JsonReader reader(json, subject);
    bool has_format = false, has_shape = false, has_dtype = false;
    reader.begin_object();
    std::string key;
    while (reader.next_member(key)) {
        if (key == "format") {
            entry.format = reader.read_string();
            has_format = true;
        } else if (key == "dtype") {
            entry.dtype = reader.read_string();
            has_dtype = true;
        } else if (key == "shape") {
            entry.shape = reader.read_sizes();
            has_shape = true;
        } else {
            core::fail(Status::io_error, subject, ": unknown key ", printable(key), "; use format, shape and dtype");
        }
    }
    reader.finish();
    const char* missing = !has_format ? "format" : !has_shape ? "shape" : !has_dtype ? "dtype" : nullptr;
    if (missing) core::fail(Status::io_error, subject, ": ", missing, " is missing");
    check_description(entry.format, entry.dtype, Status::io_error, subject);
}

QuantizedEntry read_entry(const SafetensorsFile& file, const std::string& name, std::string_view json, const PlanesOfFormat& planes_of) {
    const std::string subject = core::join(file.source(), ": quantized tensor ", printable(name));
    QuantizedEntry entry;
    entry.name = name;
    read_description(entry, json, subject);
    entry.codes = file.find(codes_name(name));
    entry.scales = file.find(scales_name(name));
    entry.zero_points = file.find(zero_points_name(name));
    entry.tensor_scale = file.find(tensor_scale_name(name));
    if (!entry.codes) core::fail(Status::io_error, subject, ": tensor ", printable(codes_name(name)), " is missing");

    const PlaneSet planes{*plane_of(entry.codes), plane_of(entry.scales), plane_of(entry.zero_points), plane_of(entry.tensor_scale)};
    check_planes(planes, entry.shape, Status::io_error, subject);
    if (planes_of) check_format(planes_of, entry, planes, subject);
    return entry;
}

}  // namespace

std::string codes_dtype(Element element) {
    switch (element) {
    case Element::int8: return "I8";
    case Element::fp8_e4m3: return "F8_E4M3";
    case Element::fp8_e5m2: return "F8_E5M2";
    default: return "U8";
    }
}

std::string scales_dtype(Element scale) {
    switch (scale) {
    case Element::fp32: return "F32";
    case Element::fp16: return "F16";
    case Element::bf16: return "BF16";
    case Element::e8m0: return "F8_E8M0";
    case Element::fp8_e4m3: return "F8_E4M3";
    default: core::fail(Status::invalid_argument, "scales of element ", int(scale), "; use fp32, fp16, bf16, e8m0 or fp8_e4m3");
    }
}

MatrixShape matrix_shape(const std::vector<int64_t>& shape) {
    core::require(!shape.empty(), "shape [] is no matrix; use at least one size");
    MatrixShape matrix{.rows = 1, .columns = shape.back()};
    for (size_t axis = 0; axis + 1 < shape.size(); ++axis)
        matrix.rows = core::checked_multiply(matrix.rows, shape[axis], "rows of a shape");
    return matrix;
}

std::string codes_name(std::string_view name) { return std::string(name) + ".codes"; }
std::string scales_name(std::string_view name) { return std::string(name) + ".scales"; }
std::string zero_points_name(std::string_view name) { return std::string(name) + ".zero_points"; }
std::string tensor_scale_name(std::string_view name) { return std::string(name) + ".tensor_scale"; }

std::vector<QuantizedEntry> list_quantized(const SafetensorsFile& file, const PlanesOfFormat& planes_of) {
    std::vector<QuantizedEntry> entries;
    const auto found = file.metadata().find(version_key);
    if (found != file.metadata().end() && found->second != version)
        core::fail(Status::unsupported, file.source(), ": metadata \"lowbit\" is ", printable(found->second),
                   "; this library reads version ", printable(version));
    for (const auto& [key, value] : file.metadata()) {
        if (!key.starts_with(tensor_key_prefix)) continue;
        if (found == file.metadata().end())
            core::fail(Status::io_error, file.source(), ": metadata ", printable(key),
                       " is there, but \"lowbit\", the version, is missing");
        entries.push_back(read_entry(file, key.substr(tensor_key_prefix.size()), value, planes_of));
    }
    return entries;
}

void declare_quantized(SafetensorsPlan& plan, const QuantizedDeclaration& declaration) {
    const std::string subject = "quantized tensor " + printable(declaration.name);
    check_description(declaration.format, declaration.dtype, Status::invalid_argument, subject);
    for (const int64_t size : declaration.shape)
        core::require(size >= 0, subject, ": shape ", shape_text(declaration.shape), " has a negative size");
    check_planes(declaration.planes, declaration.shape, Status::invalid_argument, subject);

    const auto add = [&](const std::string& name, const Plane& plane) { plan.tensors.push_back({name, plane.dtype, plane.shape}); };
    add(codes_name(declaration.name), declaration.planes.codes);
    if (declaration.planes.scales) add(scales_name(declaration.name), *declaration.planes.scales);
    if (declaration.planes.zero_points) add(zero_points_name(declaration.name), *declaration.planes.zero_points);
    if (declaration.planes.tensor_scale) add(tensor_scale_name(declaration.name), *declaration.planes.tensor_scale);

    std::string json = "{\"format\":";
    append_json_string(json, declaration.format);
    json += ",\"shape\":[";
    for (size_t axis = 0; axis < declaration.shape.size(); ++axis) json += (axis > 0 ? "," : "") + std::to_string(declaration.shape[axis]);
    json += "],\"dtype\":";
    append_json_string(json, declaration.dtype);
    json += '}';
    plan.metadata[version_key] = version;
    plan.metadata[std::string(tensor_key_prefix) + declaration.name] = json;
}

}  // namespace lowbit::io
