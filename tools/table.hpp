// Aligned plain text tables.
#pragma once
#include <ostream>
#include <string>
#include <vector>

#include "terminal.hpp"

namespace lowbit::tools {

enum class Align { left, right };

struct Column {
    std::string heading;  // may have several lines; they stand on the bottom line
    Align align = Align::right;
    size_t width = 0;  // at least; in a LiveTable, as much as its widest cell will need
};

struct Cell {
    Cell(std::string cell_text, Style cell_style = Style::plain) : text(std::move(cell_text)), style(cell_style) {}
    Cell(const char* cell_text) : text(cell_text) {}
    std::string text;
    Style style = Style::plain;
};

using Cells = std::vector<Cell>;

// Lines are printed as they come, so a column's width is settled before its cells are known.
class LiveTable {
public:
    LiveTable(std::ostream& out, std::vector<Column> columns);

    void headings();
    void section(const std::string& heading);
    void row(const Cells& cells);  // fewer cells than columns leave the rest empty
    // What there is to say instead of cells.
    void note(const std::string& first, const std::string& text);
    void rule();

private:
    void line(const Cells& cells);

    std::ostream& out_;
    std::vector<Column> columns_;
    bool has_rows_ = false;
};

// The whole table is known before it is printed, and its columns fit their cells.
class Table {
public:
    explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

    void row(Cells cells) { lines_.push_back({Line::Kind::row, std::move(cells)}); }
    void section(const std::string& heading) { lines_.push_back({Line::Kind::section, {heading}}); }
    void rule() { lines_.push_back({Line::Kind::rule, {}}); }
    void print(std::ostream& out) const;

private:
    struct Line {
        enum class Kind { row, section, rule } kind;
        Cells cells;
    };

    std::vector<Column> columns_;
    std::vector<Line> lines_;
};

}  // namespace lowbit::tools
