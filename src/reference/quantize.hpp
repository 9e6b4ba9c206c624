// Quantization in three steps that work on rows, so that a caller may spread the rows over threads and get the same bits: statistics of the
// whole tensor (for formats that have a scale of the whole tensor), scales, codes.
#pragma once
#include <vector>

#include "core/problem.hpp"
#include "reference/scales.hpp"

namespace lowbit::reference {

// Of the finite values of a group.
struct Statistics : Range {
    // For the mean of |x|, filled only when asked for: 32 strided partial sums per row, added pairwise; rows in order.
    double magnitudes = 0;
    int64_t finite = 0;

    float mean() const { return finite ? float(magnitudes / double(finite)) : 0.0f; }
    void add_row(const float* x, int64_t n, bool with_magnitudes);
    void merge(const Statistics& next);
};

class Quantizer {
public:
    explicit Quantizer(const core::QuantizeProblem& problem) : problem_(problem) {}

    // Step 1, only where needs_tensor_statistics(): the statistics of each row, merged in the order of the rows.
    bool needs_tensor_statistics() const;
    Statistics row_statistics(int64_t row) const;
    void set_tensor_statistics(const Statistics& statistics) const;

    // Step 2: the scales of row `scale_row` of the plane of scales (it covers several rows of x where the format has blocks).
    bool needs_scales() const;
    int64_t scale_rows() const;
    void compute_scales(int64_t scale_row) const;
    // One scale (and zero point) from the statistics of its group.
    void store_scale(int64_t index, const Statistics& statistics) const;

    // Step 3: the codes of one row.
    void encode_row(int64_t row) const;

private:
    const core::QuantizeProblem& problem_;
};

void quantize(const core::QuantizeProblem& problem);
void dequantize_row(const core::DequantizeProblem& problem, int64_t row);
void dequantize(const core::DequantizeProblem& problem);
void convert(const core::ConvertProblem& problem);
void matmul(const core::MatmulProblem& problem);

}  // namespace lowbit::reference
