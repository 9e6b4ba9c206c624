#include "product.hpp"

namespace lowbit::tools {

bool is_plain(const Format& format) {
    return format.element() == Element::fp32 || format.element() == Element::fp16 || format.element() == Element::bf16;
}

Tensor as_tensor(const Quantized& quantized) {
    const lowbit_quantized_view view = quantized.view();
    return Tensor(view.codes, Element(view.format.element), {view.rows, view.columns});
}

void fill_ring(Ring& ring, const Context& context, const Quantized& weight) {
    is_plain(weight.format()) ? ring.fill(as_tensor(weight)) : ring.fill(context, weight);
}

TimedProduct time_product(const Context& context, const Matrix& tokens, Ring& ring, Matrix& y, const std::string& x_format,
                          TokensQuantized when, const TimingOptions& options) {
    const Tensor plain = tokens.view(), result = y.view();
    const auto time = [&](const Operand& x, const Epilogue& epilogue) {
        TimedProduct product;
        product.kernel = chosen_kernel(explain(context, x, ring.next(), result, epilogue));
        product.timing = time_runs(options, [&] { matmul(context, x, ring.next(), result, epilogue); });
        return product;
    };
    if (x_format.empty() || when == TokensQuantized::on_the_way) return time(plain, {.x_format = x_format});
    return time(quantize(context, plain, x_format), {});
}

std::string chosen_kernel(const std::string& explanation) {
    constexpr std::string_view prefix = "chosen: ";
    const size_t begin = explanation.starts_with(prefix) ? prefix.size() : 0;
    return explanation.substr(begin, explanation.find(';', begin) - begin);
}

}  // namespace lowbit::tools
