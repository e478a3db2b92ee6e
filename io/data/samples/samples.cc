// Iterates over the kinds of the variant.
#include "io/data/samples/samples.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "io/base/text/text_parts.h"

namespace io {
namespace {

// Calls `use(kind)` for an empty set of each kind.
template <class Use, std::size_t... kIndex>
void for_each_kind(const Use& use, std::index_sequence<kIndex...>) {
  (use(std::variant_alternative_t<kIndex, Samples>{}), ...);
}

template <class Use>
void for_each_kind(const Use& use) {
  for_each_kind(use, std::make_index_sequence<std::variant_size_v<Samples>>());
}

}  // namespace

std::unique_ptr<BatchPart> batch_part(const Samples& samples, const Preparation& how) {
  return std::visit([&](const auto& kind) { return kind.batch_part(how); }, samples);
}

std::optional<Samples> samples_named(std::string_view name) {
  std::optional<Samples> found;
  for_each_kind([&](auto kind) {
    if (name == decltype(kind)::kTraits.name) found = std::move(kind);
  });
  return found;
}

std::string sample_names() {
  std::vector<std::string> names;
  for_each_kind([&](const auto& kind) { names.emplace_back(kind.kTraits.name); });
  const std::string last = names.back();
  names.pop_back();
  return base::join_text(names) + " or " + last;
}

}  // namespace io
