#include "table.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

#include "text.hpp"

namespace lowbit::tools {
namespace {

constexpr size_t gap = 2;

std::vector<std::string> split_lines(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

size_t heading_width(const std::string& heading) {
    size_t width = 0;
    for (const std::string& line : split_lines(heading)) width = std::max(width, text_width(line));
    return width;
}

}  // namespace

LiveTable::LiveTable(std::ostream& out, std::vector<Column> columns) : out_(out), columns_(std::move(columns)) {
    for (Column& column : columns_) column.width = std::max(column.width, heading_width(column.heading));
}

void LiveTable::line(const Cells& cells) {
    std::string text;
    size_t owed = 0;  // spaces before the next text; none are left at the end of a line
    for (size_t i = 0; i < columns_.size(); ++i) {
        const std::string cell = i < cells.size() ? without_controls(cells[i].text) : "";
        const size_t width = text_width(cell), padding = columns_[i].width - std::min(columns_[i].width, width);
        if (columns_[i].align == Align::right) owed += padding;
        if (width > 0) {
            text += std::string(owed, ' ') + styled(cell, cells[i].style);
            owed = 0;
        }
        owed += gap + (columns_[i].align == Align::left ? padding : 0);
    }
    out_ << text << '\n' << std::flush;
}

void LiveTable::headings() {
    std::vector<std::vector<std::string>> headings;
    size_t height = 0;
    for (const Column& column : columns_) {
        headings.push_back(split_lines(column.heading));
        height = std::max(height, headings.back().size());
    }
    for (size_t i = 0; i < height; ++i) {
        Cells cells;
        for (const auto& lines : headings) {
            const size_t missing = height - lines.size();
            cells.emplace_back(i < missing ? "" : lines[i - missing], Style::bold);
        }
        line(cells);
    }
    rule();
}

void LiveTable::section(const std::string& heading) {
    out_ << (has_rows_ ? "\n" : "") << styled(heading, Style::bold) << '\n' << std::flush;
}

void LiveTable::row(const Cells& cells) {
    line(cells);
    has_rows_ = true;
}

void LiveTable::note(const std::string& first, const std::string& text) {
    const size_t width = columns_.front().width + gap, used = std::min(width, text_width(first));
    out_ << without_controls(first) << std::string(width - used, ' ') << styled(without_controls(text), Style::dim) << '\n' << std::flush;
    has_rows_ = true;
}

void LiveTable::rule() {
    size_t width = 0;
    for (const Column& column : columns_) width += column.width + gap;
    std::string text;
    for (size_t i = gap; i < width; ++i) text += "─";
    out_ << styled(text, Style::dim) << '\n';
}

void Table::print(std::ostream& out) const {
    std::vector<Column> columns = columns_;
    for (const Line& line : lines_)
        for (size_t i = 0; line.kind == Line::Kind::row && i < std::min(columns.size(), line.cells.size()); ++i)
            columns[i].width = std::max(columns[i].width, text_width(without_controls(line.cells[i].text)));
    LiveTable table(out, columns);
    table.headings();
    for (const Line& line : lines_) {
        switch (line.kind) {
        case Line::Kind::row: table.row(line.cells); break;
        case Line::Kind::section: table.section(line.cells.front().text); break;
        case Line::Kind::rule: table.rule(); break;
        }
    }
}

}  // namespace lowbit::tools
