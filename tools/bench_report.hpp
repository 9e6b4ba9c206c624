// How measurements are shown: tables that grow while they are made, and one JSON file at the end.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "machine.hpp"
#include "measure.hpp"
#include "table.hpp"

namespace lowbit::tools {

void print_ceilings(const Ceilings& ceilings);
// A line of warning where the ceilings of before the measurements are well below those of after.
void print_disturbance(const Ceilings& before, const Ceilings& after);

// One table per verb; a new one begins when the verb changes.
class BenchTable {
public:
    explicit BenchTable(const Ceilings& ceilings) : ceilings_(ceilings) {}
    void add(const Measurement& measurement);

private:
    void begin(Op op);

    const Ceilings& ceilings_;
    std::optional<LiveTable> table_;
    Op op_ = Op::matmul;
};

void write_json(const std::string& path, const std::string& commit, const Ceilings& ceilings, const std::vector<Measurement>& measurements);

}  // namespace lowbit::tools
