#include "checkpoint.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/format.hpp"
#include "core/status.hpp"
#include "core/tensor.hpp"

namespace lowbit::tools {
namespace {

// Clean pages of a read-only mapping: whoever touches one again reads it from the file again.
void forget_pages(std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    const size_t before = reinterpret_cast<uintptr_t>(bytes.data()) % size_t(::sysconf(_SC_PAGESIZE));
    ::madvise(const_cast<std::byte*>(bytes.data()) - before, before + bytes.size(), MADV_DONTNEED);
}

extern "C" void remove_files_and_exit(int signal) {
    io::remove_temporary_files();
    ::_exit(128 + signal);
}

lowbit_quantized_view rows_of(const lowbit_quantized_view& view, const lowbit_format_sizes& sizes, int64_t first, int64_t count) {
    lowbit_quantized_view piece = view;
    piece.rows = count;
    piece.codes = static_cast<std::byte*>(view.codes) + first * sizes.row_bytes;
    // Scales of a whole tensor stay where they are; blocks share theirs among group_rows rows.
    int64_t scale_row = 0;
    if (view.format.granularity == LOWBIT_SCALE_ROW || view.format.granularity == LOWBIT_SCALE_GROUP) scale_row = first;
    if (view.format.granularity == LOWBIT_SCALE_BLOCK) scale_row = first / view.format.group_rows;
    const int64_t scale = scale_row * sizes.scale_columns;
    if (view.scales) piece.scales = static_cast<std::byte*>(view.scales) + scale * core::element_bytes(Element(view.format.scale));
    if (view.zero_points) piece.zero_points = view.zero_points + scale;
    return piece;
}

}  // namespace

io::PlaneSet planes_of_format(const std::string& text, int64_t rows, int64_t columns) {
    const core::Format format = core::Format::parse(text);
    const core::PlaneSizes sizes = format.measure(rows, columns);
    const std::vector<int64_t> scales_shape = {sizes.scale_rows, sizes.scale_columns};
    io::PlaneSet planes;
    planes.codes = {io::codes_dtype(format.element), {rows, sizes.row_bytes}};
    if (format.granularity != Granularity::none) planes.scales = {io::scales_dtype(format.scale), scales_shape};
    if (format.asymmetric) planes.zero_points = {"U8", scales_shape};
    if (format.has_tensor_scale()) planes.tensor_scale = {"F32", {1}};
    return planes;
}

std::optional<Element> float_element(const std::string& dtype) {
    if (dtype == "F32") return Element::fp32;
    if (dtype == "F16") return Element::fp16;
    if (dtype == "BF16") return Element::bf16;
    return std::nullopt;
}

void refuse_same_file(const std::string& input, const std::string& output) {
    std::error_code error;  // where one does not exist, they differ
    core::require(!std::filesystem::equivalent(input, output, error) || error, "IN and OUT are the same file, ", output,
                  "; write to another name");
}

void remove_unfinished_files_on_signals() {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
        struct sigaction action {};
        if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;  // nohup
        action = {};
        action.sa_handler = remove_files_and_exit;
        ::sigaction(signal, &action, nullptr);
    }
}

FileBytes::FileBytes(std::span<const std::byte> bytes, size_t alignment) : bytes_(bytes) {
    if (reinterpret_cast<uintptr_t>(bytes.data()) % alignment == 0) return;
    copy_ = std::make_unique_for_overwrite<std::byte[]>(bytes.size());
    std::memcpy(copy_.get(), bytes.data(), bytes.size());
}

FileBytes::~FileBytes() { forget_pages(bytes_); }

FileBytes::FileBytes(FileBytes&& other) noexcept : bytes_(std::exchange(other.bytes_, {})), copy_(std::move(other.copy_)) {}

void copy_tensor(const io::SafetensorsFile& file, const io::TensorInfo& tensor, io::SafetensorsWriter& writer) {
    constexpr size_t piece = size_t(16) << 20;
    std::span<const std::byte> rest = file.data(tensor);
    while (!rest.empty()) {
        const FileBytes bytes(rest.first(std::min(piece, rest.size())), 1);
        writer.append(tensor.name, rest.first(std::min(piece, rest.size())));
        rest = rest.subspan(std::min(piece, rest.size()));
    }
}

void for_row_pieces(const lowbit_quantized_view& view, const std::function<void(const lowbit_quantized_view&, int64_t)>& body) {
    constexpr int64_t values_per_piece = 1 << 20;
    const lowbit_format_sizes sizes = Format(view.format).measure(view.rows, view.columns);
    const int64_t unit = std::max<int64_t>(view.format.group_rows, 1);
    const int64_t rows = std::max<int64_t>(values_per_piece / std::max<int64_t>(view.columns, 1) / unit, 1) * unit;
    for (int64_t first = 0; first < view.rows; first += rows) body(rows_of(view, sizes, first, std::min(rows, view.rows - first)), first);
}

}  // namespace lowbit::tools
