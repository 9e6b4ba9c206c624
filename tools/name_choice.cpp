// GCC 12 sees uninitialized values inside its own <regex> when the sanitizers are on.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include "name_choice.hpp"

#include <algorithm>

#include "core/status.hpp"

namespace lowbit::tools {
namespace {

std::vector<std::regex> compile(const char* option, const std::vector<std::string>& texts) {
    std::vector<std::regex> expressions;
    for (const std::string& text : texts) {
        try {
            expressions.emplace_back(text);
        } catch (const std::regex_error& error) {
            core::fail(Status::invalid_argument, option, " ", text, ": is no regular expression: ", error.what());
        }
    }
    return expressions;
}

bool matches(const std::vector<std::regex>& expressions, const std::string& name) {
    return std::ranges::any_of(expressions, [&](const std::regex& expression) { return std::regex_search(name, expression); });
}

}  // namespace

NameChoice::NameChoice(const std::vector<std::string>& include, const std::vector<std::string>& exclude)
    : include_(compile("--include", include)), exclude_(compile("--exclude", exclude)) {}

bool NameChoice::operator()(const std::string& name) const {
    return (include_.empty() || matches(include_, name)) && !matches(exclude_, name);
}

}  // namespace lowbit::tools
