// Shares of classes by the largest remainder, and samples drawn within each class.
#include "io/data/sources/sample_limit.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <queue>
#include <utility>

#include "io/base/numbers/split_mix.h"
#include "io/data/sources/image_source.h"

namespace io {
namespace {

constexpr std::uint64_t kLimitStream =
    0x6C696D6974;  // keeps these random numbers apart from those of splits and orders

using Positions = std::vector<std::int64_t>;

std::vector<Positions> positions_by_class(std::span<const std::int32_t> labels) {
  const std::int32_t highest = *std::max_element(labels.begin(), labels.end());
  std::vector<Positions> classes(static_cast<std::size_t>(highest) + 1);
  for (std::size_t i = 0; i < labels.size(); ++i)
    classes[static_cast<std::size_t>(labels[i])].push_back(static_cast<std::int64_t>(i));
  std::erase_if(classes, [](const Positions& own) { return own.empty(); });
  return classes;
}

// How many to take of each class. What a class still lacks to its exact share is kept in whole
// parts of a sample, count * size - taken * total, so that nothing is rounded.
std::vector<std::int64_t> shares(const std::vector<Positions>& classes, std::int64_t count,
                                 std::int64_t total) {
  const bool one_each = count >= static_cast<std::int64_t>(classes.size());
  std::vector<std::int64_t> taken;
  std::int64_t sum = 0;
  for (const Positions& own : classes) {
    const std::int64_t whole = count * static_cast<std::int64_t>(own.size()) / total;
    taken.push_back(std::max<std::int64_t>(whole, one_each ? 1 : 0));
    sum += taken.back();
  }
  const auto lack = [&](std::size_t c) {
    return count * static_cast<std::int64_t>(classes[c].size()) - taken[c] * total;
  };
  // Of equals the first class gets more, and the last one gives.
  using Claim = std::pair<std::int64_t, std::int64_t>;
  std::priority_queue<Claim> wanting;
  for (std::size_t c = 0; sum < count && c < classes.size(); ++c)
    wanting.emplace(lack(c), -static_cast<std::int64_t>(c));
  for (; sum < count; ++sum) {
    const auto c = static_cast<std::size_t>(-wanting.top().second);
    wanting.pop();
    ++taken[c];
    wanting.emplace(lack(c), -static_cast<std::int64_t>(c));
  }
  std::priority_queue<Claim, std::vector<Claim>, std::greater<>> giving;
  for (std::size_t c = 0; sum > count && c < classes.size(); ++c)
    if (taken[c] > 1) giving.emplace(lack(c), -static_cast<std::int64_t>(c));
  for (; sum > count; --sum) {
    const auto c = static_cast<std::size_t>(-giving.top().second);
    giving.pop();
    if (--taken[c] > 1) giving.emplace(lack(c), -static_cast<std::int64_t>(c));
  }
  return taken;
}

// Some images of another source, under new numbers.
class ChosenImages : public ImageSource {
 public:
  ChosenImages(std::shared_ptr<const ImageSource> all, Positions chosen)
      : all_(std::move(all)), chosen_(std::move(chosen)) {}
  void read(std::int64_t id, SplitMix* crop, std::span<std::uint8_t> out) const override {
    all_->read(chosen_[static_cast<std::size_t>(id)], crop, out);
  }
  void add_to(base::StreamDigest& digest) const override {
    all_->add_to(digest);
    digest.add(std::as_bytes(std::span(chosen_)));
  }

 private:
  const std::shared_ptr<const ImageSource> all_;
  const Positions chosen_;
};

// Moves what belongs to the chosen samples to the front; they ascend, so nothing is overwritten
// before it is read.
template <typename Element>
void keep_chosen(std::vector<Element>& elements, std::int64_t of_a_sample,
                 const Positions& chosen) {
  const auto width = static_cast<std::ptrdiff_t>(of_a_sample);
  auto to = elements.begin();
  for (const std::int64_t position : chosen) {
    const auto from = elements.begin() + static_cast<std::ptrdiff_t>(position) * width;
    to = from == to ? to + width : std::copy(from, from + width, to);
  }
  elements.erase(to, elements.end());
  elements.shrink_to_fit();
}

}  // namespace

std::vector<std::int64_t> stratified_positions(std::span<const std::int32_t> labels,
                                               std::int64_t count, std::uint64_t seed) {
  std::vector<Positions> classes = positions_by_class(labels);
  const std::vector<std::int64_t> taken =
      shares(classes, count, static_cast<std::int64_t>(labels.size()));
  Positions chosen;
  for (std::size_t c = 0; c < classes.size(); ++c) {
    SplitMix random(seed, kLimitStream, c);
    Positions& own = classes[c];
    for (std::size_t i = 0; i < static_cast<std::size_t>(taken[c]); ++i) {
      std::swap(own[i], own[i + random.below(static_cast<std::uint32_t>(own.size() - i))]);
      chosen.push_back(own[i]);
    }
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

void keep_samples(Dataset& set, std::int64_t count, std::uint64_t seed) {
  if (set.kind == SampleKind::kTokens) {
    set.tokens.resize(static_cast<std::size_t>((count - 1) * set.stride + set.shape[0] + 1));
    return;
  }
  // Targets are of one kind, as if they were of one class.
  const std::vector<std::int32_t> one_class(set.targets.size(), 0);
  Positions chosen = stratified_positions(set.target ? one_class : set.labels, count, seed);
  set.target ? keep_chosen(set.targets, 1, chosen) : keep_chosen(set.labels, 1, chosen);
  if (set.kind == SampleKind::kFeatures)
    return keep_chosen(set.features, set.sample_count(), chosen);
  if (set.source)
    set.source = std::make_shared<ChosenImages>(std::move(set.source), std::move(chosen));
  else
    keep_chosen(set.samples, set.sample_count(), chosen);
}

}  // namespace io
