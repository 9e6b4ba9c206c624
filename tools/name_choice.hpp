// Which tensors --include and --exclude choose.
#pragma once
#include <regex>
#include <string>
#include <vector>

namespace lowbit::tools {

// A name is chosen when it matches one of `include` (or there is none) and none of `exclude`. Part of the name is enough.
class NameChoice {
public:
    NameChoice(const std::vector<std::string>& include, const std::vector<std::string>& exclude);
    bool operator()(const std::string& name) const;

private:
    std::vector<std::regex> include_, exclude_;
};

}  // namespace lowbit::tools
