// Matches names.
#include "io/data/sources/sample_coding.h"

#include <algorithm>
#include <unordered_map>

#include "io/base/files/io_error.h"
#include "io/base/text/visible_text.h"

namespace io {
namespace {

const char* kind_text(SampleKind kind) {
  if (kind == SampleKind::kImages) return "images";
  return kind == SampleKind::kFeatures ? "rows of a table" : "tokens";
}

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
    text += (i == 0 ? "'" : ", '") + base::visible_text(names_[i].substr(0, kLongest)) + "'";
  return text + (more_names_ ? " and others" : "") + " (first: " + first_ + ")";
}

void match_classes(const SampleCoding& coding, Dataset& set,
                   const std::function<std::string(std::int64_t)>& place_of,
                   std::vector<std::string>& lines) {
  const Dataset& like = coding.like;
  const bool by_name = !set.class_names.empty() && !like.class_names.empty();
  std::unordered_map<std::string, std::int32_t> ids;
  if (by_name)
    for (std::size_t c = 0; c < like.class_names.size(); ++c)
      ids.emplace(like.class_names[c], static_cast<std::int32_t>(c));
  const auto name_of = [&](std::int32_t label) {
    return set.class_names.empty() ? std::to_string(label)
                                   : set.class_names[static_cast<std::size_t>(label)];
  };
  std::unordered_map<std::int32_t, std::int32_t> coded;  // by the data's label
  std::vector<std::string> lacking;
  const auto code = [&](std::int32_t label) {
    if (!by_name && label < like.classes) return label;
    const std::string name = name_of(label);
    if (const auto found = ids.find(name); found != ids.end()) return found->second;
    lacking.push_back(name);
    return static_cast<std::int32_t>(like.classes + std::ssize(lacking) - 1);
  };
  UnknownNames unknown;
  for (std::size_t i = 0; i < set.labels.size(); ++i) {
    const std::int32_t label = set.labels[i];
    auto found = coded.find(label);
    if (found == coded.end()) found = coded.emplace(label, code(label)).first;
    set.labels[i] = found->second;
    if (found->second >= like.classes)
      unknown.add(name_of(label), [&] { return place_of(static_cast<std::int64_t>(i)); });
  }
  set.classes = like.classes;
  set.class_names = like.class_names;
  set.unknown_classes = std::move(lacking);
  if (unknown.count() > 0)
    lines.push_back(set.name + ": " + unknown.text("samples have a class", std::ssize(set.labels)));
}

void check_kind(const SampleCoding& coding, const Dataset& set) {
  const Dataset& like = coding.like;
  if (like.kind != set.kind)
    throw DataError("found " + std::string(kind_text(set.kind)) + " in data set " + set.name +
                    ", but the model of " + coding.source + " takes " + kind_text(like.kind));
  if (like.kind == SampleKind::kImages && like.shape[2] != set.shape[2])
    throw DataError("found images of " + std::to_string(set.shape[2]) + " channels in data set " +
                    set.name + ", but the model of " + coding.source + " takes " +
                    std::to_string(like.shape[2]));
}

}  // namespace io
