#include "core/gate.hpp"

namespace lowbit::core {
namespace {

int64_t halves_bytes(const MatmulProblem& problem) {
    const int64_t values = checked_multiply(problem.m(), problem.weight.rows(), "workspace of the gate");
    const int64_t bytes = checked_multiply(values, int64_t(sizeof(float)), "workspace of the gate");
    return ceil_div(bytes, workspace_alignment) * workspace_alignment;
}

// The product of both halves, at the beginning of the scratch memory; what follows is the kernel's own.
MatmulProblem ungated(const MatmulProblem& problem) {
    MatmulProblem product = problem;
    const int64_t columns = problem.weight.rows();
    product.y = {problem.scratch, Element::fp32, problem.m(), columns, columns, 1, problem.y.device, problem.y.device_index};
    product.epilogue.gate = false;
    product.epilogue.activation = Activation::none;
    product.epilogue.beta = 0.0f;  // the pass adds to y
    if (problem.scratch) product.scratch = static_cast<std::byte*>(problem.scratch) + halves_bytes(problem);
    return product;
}

bool fuses(const Kernel<MatmulProblem>& kernel, const MatmulProblem& problem) { return kernel.fuses_gate && kernel.fuses_gate(problem); }

}  // namespace

void gate_on_cpu(const MatmulProblem& problem, const Tensor& halves) {
    const Epilogue& epilogue = problem.epilogue;
    problem.context->parallel(problem.m(), [&](int64_t m) {
        const float* gate = static_cast<const float*>(halves.data) + halves.offset(m, 0);
        for (int64_t n = 0; n < problem.n(); ++n)
            store_result(problem.y, epilogue, m, n, activate(epilogue.activation, gate[n]) * gate[n + problem.n()]);
    });
}

Kernel<MatmulProblem> with_gate(const Kernel<MatmulProblem>& kernel, const GatePass& pass) {
    Kernel<MatmulProblem> made = kernel;
    // Whether a kernel takes a problem, and how it rounds, is a matter of its product.
    const auto of_product = [](const auto& ask) {
        return [ask](const MatmulProblem& problem) { return ask(problem.epilogue.gate ? ungated(problem) : problem); };
    };
    made.supports = of_product(kernel.supports);
    if (kernel.defers) made.defers = of_product(kernel.defers);
    if (kernel.operand_rounding) made.operand_rounding = of_product(kernel.operand_rounding);
    made.workspace = [kernel](const MatmulProblem& problem) -> int64_t {
        const auto own = [&](const MatmulProblem& asked) { return kernel.workspace ? kernel.workspace(asked) : 0; };
        if (!problem.epilogue.gate || fuses(kernel, problem)) return own(problem);
        return checked_add(halves_bytes(problem), own(ungated(problem)), "workspace of the gate");
    };
    made.run = [kernel, pass](const MatmulProblem& problem) {
        if (!problem.epilogue.gate || fuses(kernel, problem)) return kernel.run(problem);
        const MatmulProblem product = ungated(problem);
        kernel.run(product);
        pass(problem, product.y);
    };
    return made;
}

std::string gate_text(const Kernel<MatmulProblem>& kernel, const MatmulProblem& problem) {
    return fuses(kernel, problem) ? "; gate: in the kernel" : "; gate: a pass after the product";
}

}  // namespace lowbit::core
