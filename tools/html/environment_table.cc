// Merges equal environments into one column.
#include "tools/html/environment_table.h"

#include <algorithm>
#include <map>
#include <vector>

#include "io/base/text/text_parts.h"
#include "tools/html/svg_chart.h"

namespace tools {
namespace {

using MachineFacts = std::map<std::string, std::string, std::less<>>;

struct Column {
  MachineFacts facts;
  std::vector<std::string> titles;
};

std::string text_of(const MachineFacts& facts, std::string_view name) {
  const auto found = facts.find(name);
  return found == facts.end() ? "" : found->second;
}

// Returns e.g. "0", "0\u20133, 6".
std::string ranges_text(const std::vector<int>& ranks) {
  std::vector<std::string> parts;
  for (std::size_t first = 0, end = 0; first < ranks.size(); first = end) {
    for (end = first + 1; end < ranks.size() && ranks[end] == ranks[end - 1] + 1;) ++end;
    parts.push_back(std::to_string(ranks[first]) +
                    (end - first > 1 ? "\u2013" + std::to_string(ranks[end - 1]) : ""));
  }
  return base::join_text(parts);
}

// Makes one column per machine of a start; a single one if the machines were not recorded.
std::vector<Column> columns_of(const RunStart& start) {
  std::vector<Column> columns;
  for (const RunMachine& machine : start.machines)
    columns.push_back(
        {{machine.facts.begin(), machine.facts.end()},
         {(machine.ranks.size() == 1 ? "rank " : "ranks ") + ranges_text(machine.ranks)}});
  if (columns.empty()) columns.emplace_back();
  for (Column& column : columns) {
    column.facts[std::string(kRanksRow)] = std::to_string(start.hosts.size());
    column.facts["backend"] = start.backend;
    column.facts["program"] = "engine " + start.program;
    if (columns.size() == 1) column.titles = {""};  // for all ranks
  }
  return columns;
}

}  // namespace

std::string environment_text(const RunRecord& record, std::string_view name) {
  if (record.starts.empty()) return "";
  std::vector<std::string> texts;
  for (const Column& column : columns_of(record.starts.back()))
    if (const std::string text = text_of(column.facts, name);
        !text.empty() && std::ranges::find(texts, text) == texts.end())
      texts.push_back(text);
  return base::join_text(texts, "; ");
}

std::string environment_html(const RunRecord& record) {
  std::vector<Column> columns;
  for (std::size_t i = 0; i < record.starts.size(); ++i)
    for (const Column& column : columns_of(record.starts[i])) {
      std::string title = column.titles.front();
      if (record.starts.size() > 1)
        title = "start " + std::to_string(i + 1) + (title.empty() ? "" : ", " + title);
      auto same = std::ranges::find(columns, column.facts, &Column::facts);
      if (same == columns.end()) same = columns.insert(same, {column.facts, {}});
      same->titles.push_back(title);
    }
  if (columns.empty()) return "";
  std::string out = "<h3>Environment</h3>\n<div class=\"scroll\"><table>";
  if (columns.size() > 1) {
    out += "<thead><tr><td></td>";
    for (const Column& column : columns)
      out += "<th scope=\"col\">" + html_text(base::join_text(column.titles, "; ")) + "</th>";
    out += "</tr></thead>";
  }
  out += "<tbody>";
  for (const auto& [name, title] : kEnvironmentRows) {
    std::string cells;
    bool is_known = false;
    for (const Column& column : columns) {
      const std::string text = text_of(column.facts, name);
      is_known = is_known || !text.empty();
      cells += "<td>" + html_text(text) + "</td>";
    }
    if (is_known) out += "<tr><th scope=\"row\">" + std::string(title) + "</th>" + cells + "</tr>";
  }
  return out + "</tbody></table></div>\n";
}

}  // namespace tools
