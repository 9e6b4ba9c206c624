// Quantized tensors in safetensors files: every format there and back, and planes that do not fit.
#include "io/quantized_file.hpp"

#include <gtest/gtest.h>

#include "core/format.hpp"
#include "io_helpers.hpp"

namespace lowbit::io {
namespace {

using namespace test;

// What the callers of list_quantized give it.
PlaneSet planes_of_format(const std::string& text, int64_t rows, int64_t columns) {
    const core::Format format = core::Format::parse(text);
    const core::PlaneSizes sizes = format.measure(rows, columns);
    const std::vector<int64_t> scales = {sizes.scale_rows, sizes.scale_columns};
    PlaneSet planes{.codes = {codes_dtype(format.element), {rows, sizes.row_bytes}}, .scales = {}, .zero_points = {}, .tensor_scale = {}};
    if (format.granularity != Granularity::none) planes.scales = {scales_dtype(format.scale), scales};
    if (format.asymmetric) planes.zero_points = {"U8", scales};
    if (format.has_tensor_scale()) planes.tensor_scale = {"F32", {1}};
    return planes;
}

void write_planes(const std::string& path, const SafetensorsPlan& plan) {
    SafetensorsWriter writer(path, plan);
    for (const TensorInfo& info : writer.tensors()) writer.append(info.name, bytes_of(std::string(info.end - info.begin, 'x')));
    writer.finish();
}

TEST(QuantizedFile, RoundTripOfEveryFormat) {
    Folder folder;
    SafetensorsPlan plan{.tensors = {{"plain", "F32", {4}}}, .metadata = {{"format", "pt"}}};
    const std::vector<int64_t> shape = {2, 3, 256};  // as experts come: two matrices in one tensor
    for (const core::Format& format : core::common_formats()) {
        const std::string text = format.print();
        declare_quantized(plan, {"layer." + text, text, shape, "BF16", planes_of_format(text, 6, 256)});
    }
    write_planes(folder / "out", plan);

    const SafetensorsFile file = SafetensorsFile::open(folder / "out");
    EXPECT_EQ(file.metadata().at("lowbit"), "1");
    EXPECT_EQ(file.metadata().at("lowbit.layer.int4:g128"), R"({"format":"int4:g128","shape":[2,3,256],"dtype":"BF16"})");
    const std::vector<QuantizedEntry> entries = list_quantized(file, planes_of_format);
    EXPECT_EQ(entries.size(), core::common_formats().size());
    for (const QuantizedEntry& entry : entries) {
        EXPECT_EQ(entry.name, "layer." + entry.format);
        EXPECT_EQ(entry.shape, shape);
        EXPECT_EQ(entry.dtype, "BF16");
        EXPECT_EQ(entry.codes, file.find(codes_name(entry.name)));
        const core::Format format = core::Format::parse(entry.format);
        EXPECT_EQ(entry.scales != nullptr, format.granularity != Granularity::none) << entry.format;
        EXPECT_EQ(entry.zero_points != nullptr, format.asymmetric) << entry.format;
        EXPECT_EQ(entry.tensor_scale != nullptr, format.has_tensor_scale()) << entry.format;
        const core::PlaneSizes sizes = format.measure(6, 256);
        EXPECT_EQ(file.data(*entry.codes).size(), uint64_t(sizes.code_bytes)) << entry.format;
        EXPECT_EQ(entry.scales ? file.data(*entry.scales).size() : 0, uint64_t(sizes.scale_bytes)) << entry.format;
    }
}

TEST(QuantizedFile, OtherFilesHoldNone) {
    const std::string text =
        make_file(R"({"__metadata__":{"format":"pt","lowbits":"x"},)" + tensor_json("w.codes", "U8", "[0]", "[0,0]") + "}");
    EXPECT_TRUE(list_quantized(SafetensorsFile::parse(bytes_of(text), "other")).empty());
}

TEST(QuantizedFile, RefusesBadFiles) {
    struct BadFile {
        const char* title;
        Metadata metadata;
        std::vector<SafetensorsPlan::Tensor> tensors;
        std::vector<std::string> names;
        Status status = Status::io_error;
    };
    const std::string good = R"({"format":"uint4:g2:asym","shape":[2,4],"dtype":"F32"})";
    const SafetensorsPlan::Tensor codes{"w.codes", "U8", {2, 2}}, scales{"w.scales", "F16", {2, 2}},
        zero_points{"w.zero_points", "U8", {2, 2}};
    const auto described = [](const char* json) { return Metadata{{"lowbit", "1"}, {"lowbit.w", json}}; };
    const Metadata usual = described(good.c_str());
    const BadFile cases[] = {
        {"no version", {{"lowbit.w", good}}, {codes, scales, zero_points}, {"\"lowbit\"", "\"lowbit.w\""}},
        {"next version",
         {{"lowbit", "2"}, {"lowbit.w", good}},
         {codes, scales, zero_points},
         {"\"lowbit\"", "\"2\"", "\"1\""},
         Status::unsupported},
        {"no codes", usual, {scales, zero_points}, {"\"w\"", "\"w.codes\" is missing"}},
        {"no scales", usual, {codes}, {"\"w\"", "\"w.scales\" is missing", "F16 [2, 2]"}},
        {"zero points alone", usual, {codes, zero_points}, {"\"w\"", "zero_points", "no plane scales"}},
        {"no zero points", usual, {codes, scales}, {"\"w\"", "\"w.zero_points\" is missing", "U8 [2, 2]"}},
        {"one plane too many",
         usual,
         {codes, scales, zero_points, {"w.tensor_scale", "F32", {1}}},
         {"\"w.tensor_scale\"", "no such plane"}},
        {"rows of codes", usual, {{"w.codes", "U8", {4, 1}}, scales, zero_points}, {"codes", "U8 [4, 1]", "[2, 4]"}},
        {"row bytes of codes", usual, {{"w.codes", "U8", {2, 4}}, scales, zero_points}, {"\"w.codes\"", "U8 [2, 4]", "U8 [2, 2]"}},
        {"dtype of codes", usual, {{"w.codes", "F32", {2, 2}}, scales, zero_points}, {"codes", "F32 [2, 2]"}},
        {"dtype of scales", usual, {codes, {"w.scales", "F64", {2, 2}}, zero_points}, {"scales", "F64 [2, 2]"}},
        {"rank of scales", usual, {codes, {"w.scales", "F16", {4}}, zero_points}, {"scales", "F16 [4]"}},
        {"other scales", usual, {codes, {"w.scales", "F32", {2, 2}}, zero_points}, {"\"w.scales\"", "F32 [2, 2]", "F16 [2, 2]"}},
        {"shape of zero points", usual, {codes, scales, {"w.zero_points", "U8", {4}}}, {"zero_points", "U8 [4]", "U8 [2, 2]"}},
        {"tensor scale", usual, {codes, scales, {"w.tensor_scale", "F32", {2}}}, {"tensor_scale", "F32 [2]", "F32 [1]"}},
        {"unknown format", described(R"({"format":"int3:row","shape":[2,4],"dtype":"F32"})"), {codes}, {"\"w\"", "int3:row"}},
        {"empty format", described(R"({"format":"","shape":[2,4],"dtype":"F32"})"), {codes}, {"\"w\"", "format is empty"}},
        {"unknown dtype", described(R"({"format":"q4_0","shape":[2,4],"dtype":"float"})"), {codes}, {"\"w\"", "\"float\"", "BF16"}},
        {"scalar", described(R"({"format":"q4_0","shape":[],"dtype":"F32"})"), {codes}, {"\"w\"", "shape []"}},
        {"huge", described(R"({"format":"q4_0","shape":[4294967296,4294967296,1],"dtype":"F32"})"), {codes}, {"\"w\"", "4294967296"}},
        {"negative", described(R"({"format":"q4_0","shape":[-2,4],"dtype":"F32"})"), {codes}, {"\"w\"", "\"shape\"", "-2"}},
        {"no format", described(R"({"shape":[2,4],"dtype":"F32"})"), {codes}, {"\"w\"", "format is missing"}},
        {"no shape", described(R"({"format":"q4_0","dtype":"F32"})"), {codes}, {"\"w\"", "shape is missing"}},
        {"no dtype", described(R"({"format":"q4_0","shape":[2,4]})"), {codes}, {"\"w\"", "dtype is missing"}},
        {"unknown key", described(R"({"format":"q4_0","shape":[2,4],"dtype":"F32","axis":0})"), {codes}, {"\"w\"", "\"axis\""}},
        {"no JSON", described("q4_0"), {codes}, {"\"w\"", "an object"}},
    };
    Folder folder;
    for (const BadFile& bad : cases) {
        const std::string path = folder / "bad";
        write_planes(path, {.tensors = bad.tensors, .metadata = bad.metadata});
        const SafetensorsFile file = SafetensorsFile::open(path);
        SCOPED_TRACE(bad.title);
        std::vector<std::string> names = bad.names;
        names.push_back(path);
        expect_refused(bad.status, names, [&] { list_quantized(file, planes_of_format); });
    }
}

TEST(QuantizedFile, RefusesBadDeclarations) {
    SafetensorsPlan plan;
    const PlaneSet planes = planes_of_format("int8:row", 2, 4);
    const std::pair<QuantizedDeclaration, const char*> cases[] = {
        {{"w", "", {2, 4}, "F32", planes}, "format is empty"},   {{"w", "int8:row", {2, 4}, "float", planes}, "\"float\""},
        {{"w", "int8:row", {}, "F32", planes}, "shape []"},      {{"w", "int8:row", {-2, 4}, "F32", planes}, "[-2, 4]"},
        {{"w", "int8:row", {3, 4}, "F32", planes}, "I8 [2, 4]"},
    };
    for (const auto& [declaration, name] : cases) {
        SCOPED_TRACE(name);
        expect_refused(Status::invalid_argument, {"\"w\"", name}, [&, &bad = declaration] { declare_quantized(plan, bad); });
    }
    EXPECT_TRUE(plan.tensors.empty());
    EXPECT_THROW(scales_dtype(Element::int4), core::Failure);
}

}  // namespace
}  // namespace lowbit::io
