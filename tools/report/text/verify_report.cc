// Formats comparisons.
#include "tools/report/text/verify_report.h"

#include <algorithm>

#include "io/base/formats/json_writer.h"
#include "io/base/text/escape_text.h"
#include "io/base/text/text_parts.h"
#include "io/interchange/array_files.h"

namespace tools {
namespace {

std::vector<std::string> minority_paths(const io::ArrayDifference& d,
                                        const std::vector<std::string>& paths) {
  std::vector<std::string> names;
  for (const int f : d.minority) names.push_back(paths[static_cast<std::size_t>(f)]);
  return names;
}

using Row = std::vector<std::string>;

// Makes columns as wide as their widest cell; the last one is not padded.
std::string aligned(const std::vector<Row>& rows) {
  std::vector<std::size_t> width(rows.front().size(), 0);
  for (const Row& row : rows)
    for (std::size_t c = 0; c < row.size(); ++c) width[c] = std::max(width[c], row[c].size());
  std::string text;
  for (const Row& row : rows) {
    for (std::size_t c = 0; c + 1 < row.size(); ++c)
      text += row[c] + std::string(width[c] - row[c].size() + 2, ' ');
    text += row.back() + "\n";
  }
  return text;
}

Row table_row(const io::ArrayDifference& d, const std::vector<std::string>& paths) {
  const bool values = d.reason == "values";
  return {base::escape_text(d.name),
          d.type,
          d.shape,
          io::to_string(d.section),
          d.reason,
          values ? base::number_text("%.6g", d.values.max_absolute) : "-",
          values && d.values.max_ulp >= 0 ? std::to_string(d.values.max_ulp) : "-",
          values ? std::to_string(d.values.first_index) : "-",
          base::escape_text(base::join_text(minority_paths(d, paths), ","))};
}

void add_object(base::JsonWriter& json, const io::ArrayDifference& d,
                const std::vector<std::string>& paths) {
  const bool values = d.reason == "values";
  json.begin_object().member("name", d.name).member("dtype", d.type);
  json.key("shape").ready_made(d.shape).member("kind", io::to_string(d.section));
  json.member("reason", d.reason);
  json.member("max_abs", values ? std::optional(d.values.max_absolute) : std::nullopt);
  json.member("max_ulp",
              values && d.values.max_ulp >= 0 ? std::optional(d.values.max_ulp) : std::nullopt);
  json.member("first_index", values ? std::optional(d.values.first_index) : std::nullopt);
  json.member("minority", minority_paths(d, paths)).end_object();
}

}  // namespace

std::string differences_text(const io::Comparison& comparison, const std::string& format,
                             std::int64_t most, const std::vector<std::string>& paths) {
  const auto& all = comparison.differences;
  const std::size_t shown =
      most > 0 ? std::min(all.size(), static_cast<std::size_t>(most)) : all.size();
  std::vector<Row> rows{{"name", "dtype", "shape", "kind", "differ in", "max |d|", "max ulp",
                         "first index", "minority"}};
  base::JsonWriter json;
  json.begin_object().member("schema", 1).member("compared", comparison.compared);
  json.key("differences").begin_array();
  std::string names;
  for (std::size_t i = 0; i < shown; ++i) {
    if (format == "names") names += base::escape_text(all[i].name) + "\n";
    if (format == "table") rows.push_back(table_row(all[i], paths));
    if (format == "json") add_object(json, all[i], paths);
  }
  if (format == "names") return names;
  if (format == "table") return shown > 0 ? aligned(rows) : "";
  json.end_array().member("differ", all.size());
  json.key("not_finite").begin_array();
  for (const io::NotFinite& tensor : comparison.not_finite) json.value(tensor.name);
  json.end_array().member("files", paths);
  return json.end_object().text() + "\n";
}

std::string verdict(const io::Comparison& comparison) {
  const auto& all = comparison.differences;
  const auto count = [&](auto predicate) {
    return std::count_if(all.begin(), all.end(), predicate);
  };
  const auto total = static_cast<std::ptrdiff_t>(all.size());
  const auto parameters = count([](const auto& d) { return d.section == io::Section::kParameter; });
  const auto running = count([](const auto& d) {
    return d.section == io::Section::kBuffer && io::is_running_statistic(d.name);
  });
  const auto others = total - parameters - running;
  std::string text =
      std::to_string(total) + " of " + std::to_string(comparison.compared) + " tensors differ";
  if (all.empty()) return text;
  text += " (" + std::to_string(parameters) + " parameters, " + std::to_string(running) +
          " BatchNorm running statistics";
  if (others > 0) text += ", " + std::to_string(others) + " others";
  text += ")";
  const auto values = count([](const auto& d) { return d.reason == "values"; });
  const auto missing = count([](const auto& d) { return d.reason == "missing"; });
  if (missing > 0) text += "; " + std::to_string(missing) + " are not in every file";
  if (total > values + missing)
    text += "; " + std::to_string(total - values - missing) + " have another shape or dtype";
  if (running == total && values == total) text += "; in sync except BN: try --sync-bn";
  return text;
}

std::string not_finite_text(const io::Comparison& comparison,
                            const std::vector<std::string>& paths) {
  constexpr std::size_t kMaxNamed = 5;
  const auto& all = comparison.not_finite;
  if (all.empty()) return "";
  std::string text = std::to_string(all.size()) +
                     (all.size() == 1 ? " tensor holds" : " tensors hold") + " NaN or infinity: ";
  for (std::size_t i = 0; i < std::min(all.size(), kMaxNamed); ++i) {
    text += (i > 0 ? ", " : "") + base::escape_text(all[i].name);
    if (all[i].files.size() == paths.size()) continue;
    std::vector<std::string> holders;
    for (const int f : all[i].files) holders.push_back(paths[static_cast<std::size_t>(f)]);
    text += " (" + base::escape_text(base::join_text(holders)) + ")";
  }
  return text + (all.size() > kMaxNamed ? ", ..." : "");
}

}  // namespace tools
