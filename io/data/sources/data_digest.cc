// Kinds of samples and labels add themselves; names follow all of them.
#include "io/data/sources/data_digest.h"

#include <string_view>
#include <vector>

#include "io/base/digests/digest.h"
#include "io/data/readers/csv/csv_coding.h"

namespace io {
namespace {

// Adds each name after its length, so that ["ab", "c"] differs from ["a", "bc"].
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
  add_names(digest, data.class_names());
  add_names(digest, data.unknown_classes());
  const TargetScale* target = data.target();
  add_names(digest, {data.vocabulary(), target != nullptr ? target->name : ""});
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
  const std::array<std::int64_t, 3> shape = data.shape();
  const std::int64_t classes = data.classes();
  digest.add(std::as_bytes(std::span(shape)));
  digest.add(std::as_bytes(std::span(&classes, 1)));
  const auto add = [&](const auto& kind) { kind.add_to(digest); };
  std::visit(add, data.labels);
  std::visit(add, data.samples);
  const std::string nameless = base::hex_text(digest.value());
  return {.text = with_names(nameless, data, table), .nameless = nameless};
}

}  // namespace io
