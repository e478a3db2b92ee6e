// What identifies a data set, whatever its folder is called.
#include <string_view>

#include "io/base/digests/digest.h"
#include "io/data/sources/csv/csv_coding.h"
#include "io/data/sources/dataset.h"
#include "io/data/sources/image_source.h"

namespace io {
namespace {

// Each name with its length in front, so that ["ab", "c"] is not ["a", "bc"].
void add_names(base::StreamDigest& digest, const std::vector<std::string>& names) {
  const auto add = [&](std::string_view text) {
    const std::uint64_t size = text.size();
    digest.add(std::as_bytes(std::span(&size, 1)));
    digest.add(std::as_bytes(std::span(text)));
  };
  const std::uint64_t count = names.size();
  digest.add(std::as_bytes(std::span(&count, 1)));
  for (const std::string& name : names) add(name);
}

std::string with_names(const std::string& nameless, const Dataset& data, const CsvCoding* table) {
  base::StreamDigest digest;
  digest.add(std::as_bytes(std::span(nameless)));
  add_names(digest, data.class_names);
  add_names(digest, data.unknown_classes);
  add_names(digest, {data.vocabulary, data.target ? data.target->name : ""});
  if (table == nullptr) return base::hex_text(digest.value());
  const std::vector<std::string>& header = table->selection.header;
  for (const CsvColumn& column : table->columns) {
    add_names(digest, {header.empty() ? "" : header[column.index]});
    add_names(digest, column.categories);
  }
  return base::hex_text(digest.value());
}

}  // namespace

DataDigest data_digest(const Dataset& data, const CsvCoding* table) {
  base::StreamDigest digest;
  const auto add = [&](const auto& values) {
    digest.add(std::as_bytes(std::span(values.data(), values.size())));
  };
  add(data.shape);
  digest.add(std::as_bytes(std::span(&data.classes, 1)));
  add(data.labels);
  if (data.target) {
    add(data.targets);
    digest.add(std::as_bytes(std::span(&data.target->mean, 1)));
    digest.add(std::as_bytes(std::span(&data.target->deviation, 1)));
  }
  add(data.samples);
  add(data.features);
  add(data.tokens);
  if (data.source) data.source->add_to(digest);
  const std::string nameless = base::hex_text(digest.value());
  return {.text = with_names(nameless, data, table), .nameless = nameless};
}

}  // namespace io
