// Names the kind of each column, and the numbers that its kind needs.
#include "tools/run/data/table_columns.h"

#include "tools/run/data/statement_text.h"

namespace tools {
namespace {

const char* kind_of(const io::CsvColumn& column) {
  if (column.one_hot()) return "categories";
  if (column.constant) return "constant";
  return column.text ? "position" : "number";
}

std::string column_description(const io::CsvCoding& coding, const io::CsvColumn& column) {
  const std::vector<std::string>& header = coding.selection.header;
  base::JsonWriter json;
  json.begin_object().key("column");
  write_text(json, header.empty() ? coding.selection.title(column.index) : header[column.index]);
  json.member("number", column.index + 1).member("kind", kind_of(column));
  json.member("inputs", column.features());
  if (column.one_hot() || !column.constant) write_texts(json, "categories", column.categories);
  if (!column.one_hot() && !column.constant)
    json.member("mean", column.mean).member("deviation", column.deviation);
  if (column.decimal != '.') json.member("decimal", std::string(1, column.decimal));
  return json.end_object().text();
}

}  // namespace

std::vector<std::string> column_descriptions(const io::CsvCoding& coding) {
  std::vector<std::string> descriptions;
  descriptions.reserve(coding.columns.size());
  for (const io::CsvColumn& column : coding.columns)
    descriptions.push_back(column_description(coding, column));
  return descriptions;
}

}  // namespace tools
