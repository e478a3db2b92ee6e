// Matches classes and other values by their names.
#include "io/data/dataset/sample_coding.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>

#include "io/base/files/io_error.h"
#include "io/base/text/escape_text.h"
#include "io/data/tables/csv_number.h"

namespace io {
namespace {

// Finds the classes of a coding by their names, or by equal numbers if no other class has the same
// number.
class ClassNames {
 public:
  explicit ClassNames(const std::vector<std::string>& names) {
    for (std::size_t c = 0; c < names.size(); ++c) {
      const auto id = static_cast<std::int32_t>(c);
      by_name_.emplace(names[c], id);
      if (const auto number = number_called(names[c]))
        if (const auto [found, added] = by_number_.emplace(*number, id); !added) found->second = -1;
    }
  }
  std::optional<std::int32_t> find(const std::string& name) const {
    if (const auto found = by_name_.find(name); found != by_name_.end()) return found->second;
    const auto number = number_called(name);
    const auto found = number ? by_number_.find(*number) : by_number_.end();
    if (found == by_number_.end() || found->second < 0) return std::nullopt;
    return found->second;
  }

 private:
  std::unordered_map<std::string, std::int32_t> by_name_;
  std::map<double, std::int32_t> by_number_;  // -1: several classes have this number
};

}  // namespace

void UnknownNames::add(std::string_view name, const std::function<std::string()>& place) {
  if (count_++ == 0) first_ = place();
  if (std::ranges::find(names_, name) != names_.end()) return;
  if (names_.size() < kMaxNames)
    names_.emplace_back(name);
  else
    more_names_ = true;
}

std::string UnknownNames::text(const std::string& subject, std::int64_t total) const {
  constexpr std::size_t kLongest = 40;
  if (count_ == 0) return "";
  std::string text = std::to_string(count_) + " of " + std::to_string(total) + " " + subject +
                     " that the model lacks: ";
  for (std::size_t i = 0; i < names_.size(); ++i)
    text += (i == 0 ? "'" : ", '") + base::escape_text(names_[i].substr(0, kLongest)) + "'";
  return text + (more_names_ ? " and others" : "") + " (first: " + first_ + ")";
}

void match_classes(const SampleCoding& coding, Dataset& set,
                   const std::function<std::string(std::int64_t)>& place_of,
                   std::vector<std::string>& lines) {
  ClassLabels* const labels = set.find<ClassLabels>();
  const ClassLabels* const like = coding.like.find<ClassLabels>();
  if (labels == nullptr || like == nullptr) return;
  const bool by_name = !labels->names.empty() && !like->names.empty();
  const ClassNames classes(like->names);
  const auto name_of = [&](std::int32_t label) {
    return labels->names.empty() ? std::to_string(label)
                                 : labels->names[static_cast<std::size_t>(label)];
  };
  std::unordered_map<std::int32_t, std::int32_t> coded;  // from the label in the data
  std::vector<std::string> lacking;
  const auto code = [&](std::int32_t label) {
    if (!by_name && label < like->count) return label;
    const std::string name = name_of(label);
    if (const auto found = classes.find(name)) return *found;
    lacking.push_back(name);
    return static_cast<std::int32_t>(like->count + std::ssize(lacking) - 1);
  };
  UnknownNames unknown;
  for (std::size_t i = 0; i < labels->ids.size(); ++i) {
    const std::int32_t label = labels->ids[i];
    auto found = coded.find(label);
    if (found == coded.end()) found = coded.emplace(label, code(label)).first;
    labels->ids[i] = found->second;
    if (found->second >= like->count)
      unknown.add(name_of(label), [&] { return place_of(static_cast<std::int64_t>(i)); });
  }
  labels->count = like->count;
  labels->names = like->names;
  labels->unknown = std::move(lacking);
  if (unknown.count() > 0)
    lines.push_back(set.name + ": " +
                    unknown.text("samples have a class", std::ssize(labels->ids)));
}

void check_kind(const SampleCoding& coding, const Dataset& set) {
  const Dataset& like = coding.like;
  if (like.samples.index() != set.samples.index())
    throw DataError("found " + std::string(set.sample_traits().noun) + " in data set " + set.name +
                    ", but the model of " + coding.source + " takes " + like.sample_traits().noun);
  const std::string found = set.intake(), expected = like.intake();
  if (found != expected)
    throw DataError("found " + found + " in data set " + set.name + ", but the model of " +
                    coding.source + " takes " + expected);
}

}  // namespace io
