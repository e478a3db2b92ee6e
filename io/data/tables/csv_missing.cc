// Defines lists of markers, and a fast check of a field's first byte.
#include "io/data/tables/csv_missing.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <utility>

#include "io/base/files/io_error.h"
#include "io/base/text/text_parts.h"
#include "io/data/tables/csv_number.h"

namespace io {
namespace {

// Adds all spellings of a word in lower and upper case.
void add_cases(const std::string& word, std::vector<std::string>& list) {
  for (std::size_t upper = 0; upper < std::size_t{1} << word.size(); ++upper) {
    std::string text = word;
    for (std::size_t i = 0; i < word.size(); ++i)
      if ((upper >> i & 1) != 0) text[i] = static_cast<char>(std::toupper(word[i]));
    list.push_back(std::move(text));
  }
}

std::vector<std::string> unstated_markers() {
  std::vector<std::string> list{"?"};
  for (const char* word : {"na", "n/a", "nan", "null"}) add_cases(word, list);
  return list;
}

// pandas' list as of version 2: pandas._libs.parsers.STR_NA_VALUES.
std::vector<std::string> default_markers() {
  std::vector<std::string> list = unstated_markers();
  for (const char* marker : {"#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan",
                             "1.#IND", "1.#QNAN", "<NA>", "None", "-", "\\N"})
    list.emplace_back(marker);
  return list;
}

}  // namespace

CsvMissing::CsvMissing() : CsvMissing(default_markers()) {}

CsvMissing::CsvMissing(std::vector<std::string> markers) : markers_(std::move(markers)) {
  std::erase_if(markers_, [](const std::string& marker) { return marker.empty(); });
  std::sort(markers_.begin(), markers_.end());
  markers_.erase(std::unique(markers_.begin(), markers_.end()), markers_.end());
  for (const std::string& marker : markers_) {
    first_[static_cast<unsigned char>(marker[0])] = true;
    longest_ = std::max(longest_, marker.size());
    CsvNumber number = read_number(marker, '.');
    if (number.content == CsvNumber::Content::kText) number = read_number(marker, ',');
    if (number.content == CsvNumber::Content::kNumber) numbers_.push_back(number.value);
  }
}

CsvMissing CsvMissing::of_option(const std::string& text) {
  if (text == "auto") return {};
  std::vector<std::string> markers;
  for (const std::string& part : base::split_text(text, ',')) {
    const std::string marker(base::trimmed(part));
    if (marker == "auto")
      std::ranges::copy(default_markers(), std::back_inserter(markers));
    else if (!marker.empty())
      markers.push_back(marker);
  }
  if (text == "empty") return CsvMissing(std::vector<std::string>());
  if (markers.empty())
    throw ConfigError("the list of missing values is '" + text +
                      "'; expected auto, empty, or texts separated by commas, as NA,-999");
  return CsvMissing(std::move(markers));
}

CsvMissing CsvMissing::of_unstated() { return CsvMissing(unstated_markers()); }

bool CsvMissing::has(std::string_view field) const {
  if (field.empty()) return true;
  if (field.size() > longest_ || !first_[static_cast<unsigned char>(field[0])]) return false;
  return std::binary_search(markers_.begin(), markers_.end(), field);
}

bool CsvMissing::has(std::string_view field, char decimal) const {
  if (has(field)) return true;
  if (!has_numbers()) return false;
  const CsvNumber number = read_number(field, decimal);
  return number.content == CsvNumber::Content::kNumber &&
         std::ranges::find(numbers_, number.value) != numbers_.end();
}

}  // namespace io
