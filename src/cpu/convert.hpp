#pragma once
#include <string>

#include "core/problem.hpp"
#include "cpu/isa.hpp"

namespace lowbit::cpu {

std::string supports_convert(const core::ConvertProblem& problem);
void run_convert(const Isa& isa, const core::ConvertProblem& problem);

}  // namespace lowbit::cpu
