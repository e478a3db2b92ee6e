// Writes and reads the members that docs/checkpoint-format.md describes.
#include "tools/run/data/sample_statement.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

#include "io/base/files/io_error.h"
#include "io/base/formats/json_writer.h"
#include "io/base/numbers/numpy_name.h"
#include "io/data/readers/csv/csv_coding.h"
#include "io/data/tables/csv_header.h"
#include "tools/report/output/json_file.h"
#include "tools/run/data/statement_text.h"

namespace tools {
namespace {

constexpr std::size_t kLongestStatement = std::size_t{16} << 20;
constexpr std::int64_t kMost = std::int64_t{1} << 40;  // samples are far smaller

std::string decimal_text(char decimal) { return std::string(1, decimal); }

void write_table(base::JsonWriter& json, const io::CsvCoding& coding) {
  json.key("table").begin_object().member("separator", coding.separator);
  if (coding.found_separator != 0)
    json.member("found_separator", std::string(1, coding.found_separator));
  json.member("columns", coding.table_columns).member("label", coding.selection.label);
  if (!coding.selection.more_labels.empty())
    json.member("more_labels", coding.selection.more_labels);
  if (coding.label_decimal != '.') json.member("label_decimal", decimal_text(coding.label_decimal));
  json.key("missing").begin_array();
  for (const std::string& marker : coding.missing->markers()) write_text(json, marker);
  json.end_array();
  write_texts(json, "header", coding.selection.header);
  json.key("features").begin_array();
  for (const io::CsvColumn& column : coding.columns) {
    json.begin_object().member("column", column.index).member("text", column.text);
    write_texts(json, "categories", column.categories);
    if (column.decimal != '.') json.member("decimal", decimal_text(column.decimal));
    write_texts(json, "odd", column.odd);
    json.member("mean", column.mean).member("deviation", column.deviation);
    json.member("constant", column.constant).end_object();
  }
  json.end_array().end_object();
}

// A lower bound of the length of the names in JSON.
std::size_t bytes_of_names(const io::DatasetSplits& splits) {
  std::size_t bytes = 0;
  for (const std::string& name : splits.train.class_names()) bytes += name.size();
  if (!splits.coding) return bytes;
  for (const std::string& name : splits.coding->selection.header) bytes += name.size();
  for (const io::CsvColumn& column : splits.coding->columns)
    for (const std::string& category : column.categories) bytes += category.size();
  return bytes;
}

bool bool_member(const Json& object, const char* key, const std::string& where) {
  const Json& value = member(object, key, where);
  if (!value.is_boolean())
    throw io::DataError(where + ": \"" + key + "\" is " + value.dump().substr(0, 40) +
                        "; expected true or false");
  return value.get<bool>();
}

std::string read_text(const Json& json, const std::string& where) {
  if (json.is_string()) return json.get<std::string>();
  std::string text;
  if (!json.is_array()) throw io::DataError(where + ": expected a text or a list of its bytes");
  for (const Json& byte : json) {
    if (!byte.is_number_integer() || byte < 0 || byte > 255)
      throw io::DataError(where + ": expected a text or a list of its bytes");
    text += static_cast<char>(byte.get<int>());
  }
  return text;
}

std::vector<std::string> read_texts(const Json& object, const char* key, const std::string& where) {
  std::vector<std::string> texts;
  if (!object.contains(key)) return texts;
  for (const Json& text : list_member(object, key, where)) texts.push_back(read_text(text, where));
  return texts;
}

std::vector<float> read_numbers(const Json& object, const char* key, const std::string& where) {
  std::vector<float> numbers;
  if (!object.contains(key)) return numbers;
  for (const Json& number : list_member(object, key, where)) {
    if (!number.is_number() || !(std::abs(number.get<double>()) < 1e30))
      throw io::DataError(where + ": \"" + key + "\" has " + number.dump().substr(0, 40) +
                          ", expected numbers");
    numbers.push_back(number.get<float>());
  }
  return numbers;
}

// Returns the decimal separator; a point if none is stated.
char read_decimal(const Json& object, const char* key, const std::string& where) {
  if (!object.contains(key)) return '.';
  const std::string text = text_member(object, key, where);
  if (text != "," && text != ".")
    throw io::DataError(where + ": \"" + key + "\" is '" + text.substr(0, 40) +
                        "', expected . or ,");
  return text[0];
}

// Returns 0 if none is stated, as by earlier versions.
char read_separator(const Json& object, const std::string& where) {
  constexpr const char* kKey = "found_separator";
  if (!object.contains(kKey)) return 0;
  const std::string text = text_member(object, kKey, where);
  if (text.size() != 1 || std::string_view(",;\t| :!#^~&").find(text[0]) == std::string_view::npos)
    throw io::DataError(where + ": \"" + kKey + "\" is '" + text.substr(0, 40) +
                        "', expected the separator of a table");
  return text[0];
}

io::CsvColumn read_column(const Json& json, std::int64_t columns, const std::string& where) {
  io::CsvColumn column;
  column.index = static_cast<std::size_t>(whole_member(json, "column", 0, columns - 1, where));
  column.text = bool_member(json, "text", where);
  column.categories = read_texts(json, "categories", where);
  column.decimal = read_decimal(json, "decimal", where);
  column.odd = read_texts(json, "odd", where);
  column.mean = real_member(json, "mean", where);
  column.deviation = real_member(json, "deviation", where);
  column.constant = bool_member(json, "constant", where);
  if (!(column.deviation > 0)) throw io::DataError(where + ": a deviation is not positive");
  if (!std::ranges::is_sorted(column.categories))
    throw io::DataError(where + ": the categories of a column are not in byte order");
  return column;
}

io::TargetScale read_target(const Json& json, const std::string& where) {
  io::TargetScale target{.name = read_text(member(json, "name", where), where),
                         .mean = real_member(json, "mean", where),
                         .deviation = real_member(json, "deviation", where)};
  if (!(target.deviation > 0))
    throw io::DataError(where + ": the deviation of the target is not positive");
  return target;
}

std::shared_ptr<const io::CsvCoding> read_table(const Json& json, const std::string& where) {
  const auto coding = std::make_shared<io::CsvCoding>();
  const std::int64_t columns = whole_member(json, "columns", 1, kMost, where);
  coding->table_columns = static_cast<std::size_t>(columns);
  coding->separator = text_member(json, "separator", where);
  coding->found_separator = read_separator(json, where);
  coding->selection.label =
      static_cast<std::size_t>(whole_member(json, "label", 0, columns - 1, where));
  if (json.contains("more_labels"))
    for (const Json& label : list_member(json, "more_labels", where)) {
      if (!label.is_number_unsigned() || label >= columns)
        throw io::DataError(where + ": found the label column " + label.dump().substr(0, 40) +
                            ", expected a number below " + std::to_string(columns));
      coding->selection.more_labels.push_back(label.get<std::size_t>());
    }
  coding->label_decimal = read_decimal(json, "label_decimal", where);
  coding->missing = std::make_shared<const io::CsvMissing>(
      json.contains("missing") ? io::CsvMissing(read_texts(json, "missing", where))
                               : io::CsvMissing::of_unstated());
  coding->selection.header = io::unique_names(read_texts(json, "header", where));
  if (!coding->selection.header.empty() && coding->selection.header.size() != coding->table_columns)
    throw io::DataError(where + ": found " + std::to_string(coding->selection.header.size()) +
                        " names of columns, expected " + std::to_string(columns));
  for (const Json& feature : list_member(json, "features", where)) {
    coding->columns.push_back(read_column(feature, columns, where));
    coding->columns.back().missing = coding->missing;
    coding->selection.columns.push_back(coding->columns.back().index);
    coding->features += coding->columns.back().features();
  }
  return coding;
}

io::Samples read_kind(const Json& json, const std::string& where) {
  const std::string kind = text_member(json, "kind", where);
  if (std::optional<io::Samples> samples = io::samples_named(kind)) return *std::move(samples);
  throw io::DataError(where + ": found samples of kind '" + kind.substr(0, 40) + "', expected " +
                      io::sample_names());
}

// Writes members of a kind of samples beside its shape; most kinds have none.
template <class Kind>
void write_kind(base::JsonWriter&, const Kind&, io::Normalization) {}
template <class Kind>
void read_kind(const Json&, const std::string&, Kind&, InputSchema&) {}

void write_kind(base::JsonWriter& json, const io::ImageSamples& images,
                io::Normalization normalization) {
  const io::ImageFormat& format = images.format;
  json.member("scaled", format.scaled);
  json.member("normalization", to_string(normalization));
  json.member("mean", format.mean).member("deviation", format.deviation);
}

void read_kind(const Json& json, const std::string& where, io::ImageSamples& images,
               InputSchema& stated) {
  io::ImageFormat& format = images.format;
  format.scaled = bool_member(json, "scaled", where);
  format.mean = read_numbers(json, "mean", where);
  format.deviation = read_numbers(json, "deviation", where);
  const std::string normalization = text_member(json, "normalization", where);
  stated.normalization = io::parse_normalization(normalization);
  if (!stated.normalization)
    throw io::DataError(where + ": found the normalization '" + normalization.substr(0, 40) +
                        "', expected unit or standard");
  const auto channels = static_cast<std::size_t>(format.shape[2]);
  if (stated.normalization == io::Normalization::kStandard &&
      (format.mean.size() != channels || format.deviation.size() != channels))
    throw io::DataError(where + ": found means and deviations of " +
                        std::to_string(format.mean.size()) + " and " +
                        std::to_string(format.deviation.size()) + " channels, expected " +
                        std::to_string(channels));
}

void write_kind(base::JsonWriter& json, const io::ArraySamples& arrays, io::Normalization) {
  json.member("tokens", arrays.are_tokens);
  if (arrays.dtype) json.member("dtype", base::numpy_name(*arrays.dtype));
}

void read_kind(const Json& json, const std::string& where, io::ArraySamples& arrays, InputSchema&) {
  arrays.are_tokens = bool_member(json, "tokens", where);
  if (!json.contains("dtype")) return;  // an earlier version wrote it
  const std::string name = text_member(json, "dtype", where);
  arrays.dtype = base::parse_numpy_name(name);
  if (!arrays.dtype)
    throw io::DataError(where + ": found the dtype '" + name.substr(0, 40) +
                        "', expected a name of NumPy, e.g. 'float32' or 'uint8'");
}

void read_kind(const Json& json, const std::string& where, io::FeatureSamples& rows,
               InputSchema& stated) {
  stated.splits.coding = read_table(member(json, "table", where), where);
  if (stated.splits.coding->features != rows.width())
    throw io::DataError(where + ": its table has " +
                        std::to_string(stated.splits.coding->features) + " features, expected " +
                        std::to_string(rows.width()));
}

std::vector<std::int64_t> read_extents(const Json& shape, const std::string& where) {
  std::vector<std::int64_t> extents;
  std::int64_t count = 1;
  for (const Json& extent : shape) {
    if (!extent.is_number_integer() || extent < 1 || extent > kMost / count || extents.size() == 7)
      throw io::DataError(where + ": found the extent " + extent.dump().substr(0, 40) +
                          ", expected up to 7 whole numbers from 1, this one to " +
                          std::to_string(kMost / count));
    extents.push_back(extent.get<std::int64_t>());
    count *= extents.back();
  }
  return extents;
}

// Targets and labels of positions are stated explicitly. Other labels follow from the kind of
// samples.
io::Labels read_labels(const Json& json, const std::string& where, const io::Samples& samples) {
  const std::int64_t classes = whole_member(json, "classes", 1, kMost, where);
  std::vector<std::string> names = read_texts(json, "class_names", where);
  if (!names.empty() && std::ssize(names) != classes)
    throw io::DataError(where + ": found names of " + std::to_string(names.size()) +
                        " classes, expected " + std::to_string(classes));
  if (json.contains("multi_label")) {
    if (std::holds_alternative<io::TokenSamples>(samples) || names.empty())
      throw io::DataError(where + ": found several labels with " + std::to_string(names.size()) +
                          " names, expected a name for each and samples that are not texts");
    return io::MultiLabels{.names = std::move(names)};
  }
  if (json.contains("target")) {
    if (!std::holds_alternative<io::FeatureSamples>(samples) || classes != 1)
      throw io::DataError(where + ": found a target with " + std::to_string(classes) +
                          " classes, expected one number and samples of kind features");
    return io::TargetValues{.scale = read_target(json["target"], where)};
  }
  if (json.contains("label_shape")) {
    std::vector<std::int64_t> extents =
        read_extents(list_member(json, "label_shape", where), where);
    if (extents.empty() || !std::holds_alternative<io::ArraySamples>(samples))
      throw io::DataError(where +
                          ": found labels of positions, expected at least one extent and "
                          "samples of kind arrays");
    return io::PositionLabels{.extents = std::move(extents), .count = classes};
  }
  if (std::holds_alternative<io::TokenSamples>(samples)) return io::NextTokens{.count = classes};
  return io::ClassLabels{.count = classes, .names = std::move(names)};
}

std::array<std::int64_t, 3> read_shape(const Json& json, const std::string& where) {
  std::array<std::int64_t, 3> extents{};
  const Json& shape = list_member(json, "shape", where);
  if (shape.size() != extents.size())
    throw io::DataError(where + ": found a shape of " + std::to_string(shape.size()) +
                        " extents, expected 3");
  std::ranges::copy(read_extents(shape, where), extents.begin());
  return extents;
}

InputSchema read_statement(const Json& json, const std::string& where) {
  InputSchema stated;
  io::Dataset& set = stated.splits.train;
  set.samples = read_kind(json, where);
  set.set_shape(read_shape(json, where));
  set.name = read_text(member(json, "name", where), where);
  set.labels = read_labels(json, where, set.samples);
  std::visit([&](auto& kind) { read_kind(json, where, kind, stated); }, set.samples);
  return stated;
}

}  // namespace

std::string sample_statement(const io::DatasetSplits& splits, io::Normalization normalization) {
  const io::Dataset& set = splits.train;
  const io::TargetScale* const target = set.target();
  if (bytes_of_names(splits) > kLongestStatement) return "";
  base::JsonWriter json;
  // A program that knows only classes would take the number for the logit of a class, and one that
  // does not know markers and decimal signs would read other numbers.
  const bool multi_label = set.find<io::MultiLabels>() != nullptr;
  const std::vector<std::int64_t> label_shape = set.label_shape();
  json.begin_object().member("schema", set.find<io::ArraySamples>() != nullptr ? 5
                                       : multi_label                           ? 4
                                       : splits.coding                         ? 3
                                       : target != nullptr                     ? 2
                                                                               : 1);
  json.member("kind", set.sample_traits().name);
  json.key("name");
  write_text(json, set.name);
  json.member("shape", set.shape()).member("classes", set.classes());
  write_texts(json, "class_names", set.class_names());
  if (multi_label) json.member("multi_label", true);
  if (!label_shape.empty()) json.member("label_shape", label_shape);
  std::visit([&](const auto& kind) { write_kind(json, kind, normalization); }, set.samples);
  if (target != nullptr) {
    json.key("target").begin_object().key("name");
    write_text(json, target->name);
    json.member("mean", target->mean).member("deviation", target->deviation).end_object();
  }
  if (splits.coding) write_table(json, *splits.coding);
  std::string text = json.end_object().text();
  return text.size() <= kLongestStatement ? std::move(text) : "";
}

InputSchema read_sample_statement(const std::string& text, const std::string& source) {
  const std::string where = source + ": its statement of the samples";
  const Json json = parse_json(text, where);
  const std::int64_t schema = whole_member(json, "schema", 1, kUnlimited, where);
  if (schema > 5)
    throw io::DataError(where + " has schema " + std::to_string(schema) +
                        ", expected 1 to 5: a later version of the program has written it");
  return read_statement(json, where);
}

StatedCoding stated_coding(const io::Checkpoint& checkpoint, const std::string& path) {
  if (checkpoint.samples.empty()) return {};
  InputSchema stated = read_sample_statement(checkpoint.samples, path);
  auto coding =
      std::make_shared<io::SampleCoding>(io::SampleCoding{.like = std::move(stated.splits.train),
                                                          .table = std::move(stated.splits.coding),
                                                          .source = path,
                                                          .digest = checkpoint.data_digest});
  if (auto* tokens = coding->like.find<io::NextTokens>())
    tokens->vocabulary = checkpoint.vocabulary;
  return {.coding = std::move(coding), .normalization = stated.normalization};
}

void check_columns(const ConfigValues& given, const ConfigValues& saved, const std::string& path,
                   const std::string& remedy) {
  for (const char* name : {"columns", "ignore-columns"}) {
    const auto now = given.find(name), own = saved.find(name);
    const std::string before = own == saved.end() ? "" : own->second.value;
    if (now != given.end() && now->second.value != before)
      throw io::ConfigError("--" + std::string(name) + " is '" + now->second.value +
                            "', but the model of " + path + " was trained with " +
                            (before.empty() ? "all columns" : "'" + before + "'") +
                            ": leave it out" + remedy);
  }
}

std::shared_ptr<const io::SampleCoding> coding_of(const io::DatasetSplits& splits,
                                                  const std::string& source) {
  auto coding = std::make_shared<io::SampleCoding>();
  coding->like = splits.train.like();
  coding->table = splits.coding;
  coding->source = source;
  coding->digest = data_digest(splits).text;
  return coding;
}

}  // namespace tools
