// What bench measures: one verb on one shape and format.
#pragma once
#include <array>
#include <map>
#include <string>

#include "product.hpp"

namespace lowbit::tools {

enum class Op { matmul, quantize, dequantize };
const char* op_name(Op op);

// tokens x rows x columns, the M, N and K of a product. quantize and dequantize take the rows x columns matrix.
struct Shape {
    int64_t m = 1, n = 0, k = 0;
    bool operator==(const Shape&) const = default;
};

struct Case {
    Op op = Op::matmul;
    std::string format;
    std::string x_format;  // matmul only; "": fp32 tokens
    Shape shape;
};

struct Measurement {
    Case what;
    std::string kernel{};
    Timing timing{};
    int64_t matrix_bytes = 0;  // of the weight in its format
    int64_t moved_bytes = 0;   // everything that must be read or written at least once
    int64_t rated_bytes = 0;   // what GB/s counts: matmul all of it, quantize the numbers read, dequantize those written
    double operations = 0;     // matmul: 2 M N K
    double fp32_seconds = 0;   // matmul: the same shape in fp32
};

struct MeasureOptions {
    std::string kernel{};  // "": choose
    int threads = 0;
    double seconds = 0.5;
    bool quantize_on_the_way = false;  // tokens in x_format: inside the measured time, or before it
};

class Bench {
public:
    explicit Bench(const MeasureOptions& options);
    Measurement measure(const Case& what);
    int threads() const { return context_.threads(); }

private:
    Measurement measure_matmul(const Case& what);
    Measurement measure_quantize(const Case& what);
    Measurement measure_dequantize(const Case& what);
    double fp32_seconds(const Shape& shape);
    const Matrix& numbers(const Shape& shape);

    MeasureOptions options_;
    Context context_, free_context_;  // the second chooses its kernels: it prepares, and measures fp32
    Ring ring_;
    Matrix numbers_;                                         // normal, of the last shape asked for
    std::map<std::array<int64_t, 3>, double> fp32_seconds_;  // by M, N and K
};

}  // namespace lowbit::tools
