#include "cpu/convolve.hpp"

#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "core/status.hpp"
#include "cpu/pieces.hpp"

namespace lowbit::cpu {
namespace {

using core::BinaryConvProblem;
using Taps = core::ConvolutionAxis::Taps;

// Positions of an axis that have the same taps inside of the image form a class: their sums hold the same part of the padding. They follow
// each other, since both ends of the taps only fall along the axis.
struct AxisClasses {
    std::vector<Taps> taps;         // of each class
    std::vector<int32_t> class_of;  // position -> class

    explicit AxisClasses(const core::ConvolutionAxis& axis) {
        for (int64_t position = 0; position < axis.positions(); ++position) {
            const Taps inside = axis.inside(position);
            if (taps.empty() || taps.back() != inside) taps.push_back(inside);
            class_of.push_back(int32_t(taps.size()) - 1);
        }
    }
    int64_t count() const { return int64_t(taps.size()); }
};

// The results of a convolution in one order, [image][row][column]: those of a product with as many tokens.
struct Position {
    int64_t image, row, column;
};
Position position_of(const BinaryConvProblem& problem, int64_t token) {
    const int64_t width = problem.y.width, height = problem.y.height;
    return {token / width / height, token / width % height, token % width};
}

// What the sums of bits hold beside the wanted products: 1 for every bit that fills up a byte (0 on both sides), and the sum of the
// weight's signs under the padding, whose bits are 0 as well, +1.
class Surplus {
public:
    Surplus(const BinaryConvProblem& problem, const Isa& isa) : down_(problem.down), across_(problem.across) {
        classes_ = down_.count() * across_.count();
        fill_ = int32_t(8 * problem.weight_row_bytes() - problem.taps() * problem.channels);
        known_.assign(size_t(problem.outputs * classes_), fill_);
        if (classes_ == 1 && down_.taps[0] == Taps{0, problem.down.kernel} && across_.taps[0] == Taps{0, problem.across.kernel}) return;
        constexpr int64_t share = 8;
        problem.context->parallel(core::ceil_div(problem.outputs, share), [&](int64_t index) {
            for (int64_t i = index * share; i < std::min(problem.outputs, (index + 1) * share); ++i) add_padding(problem, isa, i);
        });
    }

    int64_t class_of(const Position& at) const {
        return int64_t(down_.class_of[size_t(at.row)]) * across_.count() + across_.class_of[size_t(at.column)];
    }
    int32_t of(int64_t output, int64_t position_class) const { return known_[size_t(output * classes_ + position_class)]; }
    bool is_nothing() const { return classes_ == 1 && fill_ == 0; }

private:
    void add_padding(const BinaryConvProblem& problem, const Isa& isa, int64_t output) {
        const int64_t height = problem.down.kernel, width = problem.across.kernel, line = width + 1;
        const int64_t channel_bytes = core::bytes_of_bits(problem.channels);
        // The sum of the signs of each tap, as its product with +1.
        std::vector<int32_t> taps(size_t(height * width));
        const std::vector<uint8_t> plus(static_cast<size_t>(channel_bytes));
        const uint8_t* bits = problem.weight + output * problem.weight_row_bytes();
        isa.bits({bits, channel_bytes, height * width, 8 * channel_bytes}, {plus.data(), channel_bytes, 1, 8 * channel_bytes}, taps.data(),
                 1);
        // Sums over the rectangles of taps that begin at the first one.
        std::vector<int32_t> sums(size_t((height + 1) * line));
        for (int64_t row = 0; row < height; ++row)
            for (int64_t column = 0; column < width; ++column) {
                int32_t* corner = sums.data() + row * line + column;
                const auto fill = int32_t(8 * channel_bytes - problem.channels);
                corner[line + 1] = corner[line] + corner[1] - corner[0] + taps[size_t(row * width + column)] - fill;
            }
        const auto at = [&](int64_t row, int64_t column) { return sums[size_t(row * line + column)]; };
        int32_t* known = known_.data() + output * classes_;
        for (const Taps& down : down_.taps)
            for (const Taps& across : across_.taps)
                *known++ += at(height, width) - (at(down.end, across.end) - at(down.first, across.end) - at(down.end, across.first) +
                                                 at(down.first, across.first));
    }

    AxisClasses down_, across_;
    int64_t classes_ = 0;
    int32_t fill_ = 0;
    std::vector<int32_t> known_;  // [output][class of the row][class of the column]
};

// Rows of bits for a range of tokens: the patches of each group, [group][token][bytes].
class Patches {
public:
    explicit Patches(const BinaryConvProblem& problem) : problem_(problem) {
        const auto is_plain = [](const core::ConvolutionAxis& axis) {
            return axis.kernel == 1 && axis.stride == 1 && axis.before == 0 && axis.after == 0;
        };
        in_place_ = is_plain(problem.down) && is_plain(problem.across);
    }

    // A patch is a pixel as it lies in the image: nothing is gathered.
    bool in_place() const { return in_place_; }
    int64_t token_bytes() const { return problem_.groups * problem_.weight_row_bytes(); }

    // The tokens of a band, from `first` on.
    void begin(uint8_t* memory, int64_t first, int64_t count) { memory_ = memory, first_ = first, count_ = count; }

    // Some of them, counted from the first of the band.
    void gather(int64_t token, int64_t count) const {
        for (int64_t i = token; i < token + count; ++i) gather(i);
    }

    BitRows rows(int64_t group, int64_t token, int64_t count) const {
        const int64_t columns = 8 * problem_.weight_row_bytes();
        if (!in_place_)
            return {memory_ + (group * count_ + token) * problem_.weight_row_bytes(), problem_.weight_row_bytes(), count, columns};
        const uint8_t* pixel = problem_.x + (first_ + token) * problem_.pixel_bytes();
        return {pixel + group * problem_.weight_row_bytes(), problem_.pixel_bytes(), count, columns};
    }

private:
    void gather(int64_t token) const {
        const core::ConvolutionAxis &down = problem_.down, &across = problem_.across;
        const Position at = position_of(problem_, first_ + token);
        const Taps rows = down.inside(at.row), columns = across.inside(at.column);
        const int64_t row_bytes = problem_.weight_row_bytes(), channel_bytes = core::bytes_of_bits(problem_.channels);
        const bool is_whole = rows == Taps{0, down.kernel} && columns == Taps{0, across.kernel};
        const int64_t column = at.column * across.stride - across.before + columns.first * across.dilation;
        for (int64_t group = 0; group < problem_.groups; ++group) {
            uint8_t* patch = memory_ + (group * count_ + token) * row_bytes;
            if (!is_whole) std::memset(patch, 0, size_t(row_bytes));
            for (int64_t tap = rows.first; tap < rows.end; ++tap) {
                const int64_t row = at.row * down.stride - down.before + tap * down.dilation;
                const uint8_t* from = problem_.x + ((at.image * down.size + row) * across.size + column) * problem_.pixel_bytes();
                copy_taps(from + group * channel_bytes, patch + (tap * across.kernel + columns.first) * channel_bytes,
                          columns.end - columns.first);
            }
        }
    }

    void copy_taps(const uint8_t* from, uint8_t* to, int64_t taps) const {
        const int64_t channel_bytes = core::bytes_of_bits(problem_.channels), step = problem_.across.dilation * problem_.pixel_bytes();
        if (step == channel_bytes) {
            std::memcpy(to, from, size_t(taps * channel_bytes));
            return;
        }
        for (int64_t tap = 0; tap < taps; ++tap) std::memcpy(to + tap * channel_bytes, from + tap * step, size_t(channel_bytes));
    }

    const BinaryConvProblem& problem_;
    bool in_place_ = false;
    uint8_t* memory_ = nullptr;
    int64_t first_ = 0, count_ = 0;
};

// From sums to y: the surplus, scale, bias, and a place in memory with any strides.
class ResultWriter {
public:
    ResultWriter(const BinaryConvProblem& problem, const Isa& isa) : problem_(problem), isa_(isa), surplus_(problem, isa) {
        for (int64_t i = 0; i < problem.outputs; ++i) {
            scale_.push_back(problem.scale ? core::load(*problem.scale, 0, i) : 1.0f);
            bias_.push_back(problem.bias ? core::load(*problem.bias, 0, i) : -0.0f);  // adding -0 leaves every number as it is
        }
        ones_.fill(1.0f);
    }

    // sums[output][token]: `outputs` of them from `output` on, of tokens from `token` on.
    void store(int64_t output, int64_t outputs, int64_t token, int64_t tokens, int32_t* sums, int64_t stride) const {
        // Parts of a row of the result, and in it of one class.
        int64_t count = 0;
        for (int64_t done = 0; done < tokens && !surplus_.is_nothing(); done += count) {
            const Position at = position_of(problem_, token + done);
            const int64_t found = surplus_.class_of(at), most = std::min(tokens - done, problem_.y.width - at.column);
            count = 1;
            while (count < most && surplus_.class_of({at.image, at.row, at.column + count}) == found) ++count;
            for (int64_t i = 0; i < outputs; ++i) {
                const int32_t known = surplus_.of(output + i, found);
                if (known != 0)
                    for (int64_t t = done; t < done + count; ++t) sums[i * stride + t] -= known;
            }
        }
        if (problem_.y.strides[1] == 1)
            along_outputs(output, outputs, token, tokens, sums, stride);
        else
            along_tokens(output, outputs, token, tokens, sums, stride);
    }

private:
    static constexpr int64_t width = 64, height = 16;  // numbers that are finished at a time

    // Outputs that lie side by side: lines of them, tokens one below the other.
    void along_outputs(int64_t output, int64_t outputs, int64_t token, int64_t tokens, const int32_t* sums, int64_t stride) const {
        alignas(64) float lines[height * width];
        for (int64_t t = 0; t < tokens; t += height)
            for (int64_t i = 0; i < outputs; i += width) {
                const int64_t lines_here = std::min(height, tokens - t), here = std::min(width, outputs - i);
                const int32_t* from = sums + i * stride + t;
                if (problem_.y.element == Element::int32) {
                    for (int64_t line = 0; line < lines_here; ++line) {
                        auto* to = reinterpret_cast<int32_t*>(place(token + t + line, output + i));
                        for (int64_t j = 0; j < here; ++j) to[j] = from[j * stride + line];
                    }
                    continue;
                }
                finish(from, stride, here, lines_here, output + i, lines);
                for (int64_t line = 0; line < lines_here; ++line)
                    isa_.from_float(problem_.y.element, lines + line * width, place(token + t + line, output + i), here);
            }
    }

    void finish(const int32_t* sums, int64_t stride, int64_t outputs, int64_t tokens, int64_t output, float* lines) const {
        const LineFactors factors{ones_.data(), scale_.data() + output, bias_.data() + output};
        if (isa_.int_lines) return isa_.int_lines(sums, stride, outputs, tokens, factors, lines, width);
        for (int64_t t = 0; t < tokens; ++t)
            for (int64_t i = 0; i < outputs; ++i) lines[t * width + i] = float(sums[i * stride + t]) * factors.rows[i] + factors.bias[i];
    }

    // Pixels of one image, side by side or not.
    void along_tokens(int64_t output, int64_t outputs, int64_t token, int64_t tokens, const int32_t* sums, int64_t stride) const {
        const core::Images& y = problem_.y;
        const bool rows_follow = y.strides[2] == y.width * y.strides[3];
        int64_t count = 0;
        for (int64_t done = 0; done < tokens; done += count) {
            const Position at = position_of(problem_, token + done);
            const int64_t rest = rows_follow ? (y.height - at.row) * y.width - at.column : y.width - at.column;
            count = std::min(tokens - done, rest);
            for (int64_t i = 0; i < outputs; ++i) store_pixels(output + i, token + done, count, sums + i * stride + done);
        }
    }

    void store_pixels(int64_t output, int64_t token, int64_t count, const int32_t* sums) const {
        const int64_t step = problem_.y.strides[3], bytes = core::element_bytes(problem_.y.element);
        std::byte* to = place(token, output);
        const float scale = scale_[size_t(output)], bias = bias_[size_t(output)];
        alignas(64) float line[width];
        if (problem_.y.element == Element::int32) {
            for (int64_t i = 0; i < count; ++i) reinterpret_cast<int32_t*>(to)[i * step] = sums[i];
            return;
        }
        for (int64_t first = 0; first < count; first += width) {
            const int64_t here = std::min(width, count - first);
            for (int64_t i = 0; i < here; ++i) line[i] = float(sums[first + i]) * scale + bias;
            if (step == 1)
                isa_.from_float(problem_.y.element, line, to + first * bytes, here);
            else
                for (int64_t i = 0; i < here; ++i) core::store(problem_.y.element, to, (first + i) * step, line[i]);
        }
    }

    std::byte* place(int64_t token, int64_t output) const {
        const Position at = position_of(problem_, token);
        const int64_t offset = problem_.y.offset(at.image, output, at.row, at.column);
        return static_cast<std::byte*>(problem_.y.data) + offset * core::element_bytes(problem_.y.element);
    }

    const BinaryConvProblem& problem_;
    const Isa& isa_;
    Surplus surplus_;
    std::vector<float> scale_, bias_;
    std::array<float, height> ones_;
};

// Pieces whose sums stay in the second-level cache until they are stored, a few for each thread.
Pieces cut(const BinaryConvProblem& problem, int64_t tokens) {
    constexpr int64_t most_rows = 256, most_tokens = 256, row_unit = 16, pieces_per_thread = 2;
    Pieces pieces{problem.group_outputs(), tokens, most_rows, std::min(tokens, most_tokens)};
    const int64_t wanted = core::ceil_div(pieces_per_thread * problem.context->threads(), problem.groups * pieces.token_pieces());
    const int64_t share = core::ceil_div(core::ceil_div(pieces.rows, wanted), row_unit) * row_unit;
    pieces.piece_rows = std::clamp(share, row_unit, most_rows);
    return pieces;
}

}  // namespace

std::string supports_binary_conv(const BinaryConvProblem&) { return ""; }

void run_binary_conv(const Isa& isa, const BinaryConvProblem& problem) { run_binary_conv(isa, problem, band_bytes); }

void run_binary_conv(const Isa& isa, const BinaryConvProblem& problem, int64_t patches_bytes) {
    const core::Images& y = problem.y;
    if (y.is_empty()) return;
    const core::Context& context = *problem.context;
    const ResultWriter writer(problem, isa);
    Patches patches(problem);
    const int64_t tokens = y.images * y.height * y.width, row_bytes = problem.weight_row_bytes();
    const bool gathers = !patches.in_place() && row_bytes > 0;
    const int64_t band = gathers ? std::clamp<int64_t>(patches_bytes / patches.token_bytes(), 1, tokens) : tokens;
    const core::Buffer memory(context.allocator, gathers ? band * patches.token_bytes() : 0);
    for (int64_t first = 0; first < tokens; first += band) {
        const int64_t here = std::min(band, tokens - first);
        patches.begin(reinterpret_cast<uint8_t*>(memory.data()), first, here);
        constexpr int64_t share = 128;
        if (gathers)
            context.parallel(core::ceil_div(here, share),
                             [&](int64_t index) { patches.gather(index * share, std::min(share, here - index * share)); });
        const Pieces pieces = cut(problem, here);
        context.parallel(problem.groups * pieces.count(), [&](int64_t index) {
            const int64_t group = index / pieces.count(), output = group * problem.group_outputs();
            const Finisher::Piece piece = pieces[index % pieces.count()];
            const auto sums = std::make_unique_for_overwrite<int32_t[]>(piece.sums());
            const BitRows weight{problem.weight + (output + piece.first_row) * row_bytes, row_bytes, piece.rows, 8 * row_bytes};
            isa.bits(weight, patches.rows(group, piece.first_token, piece.tokens), sums.get(), piece.stride());
            writer.store(output + piece.first_row, piece.rows, first + piece.first_token, piece.tokens, sums.get(), piece.stride());
        });
    }
}

}  // namespace lowbit::cpu
