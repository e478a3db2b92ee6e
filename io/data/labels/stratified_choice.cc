// Divides samples among classes by the largest remainder method, and draws samples within each
// class.
#include "io/data/labels/stratified_choice.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "io/base/numbers/split_mix.h"

namespace io {
namespace {

constexpr std::uint64_t kLimitStream =
    0x6C696D6974;  // separates these random numbers from those of splits and orders

using Positions = std::vector<std::int64_t>;

std::vector<Positions> positions_by_class(std::span<const std::int32_t> labels) {
  const std::int32_t highest = *std::max_element(labels.begin(), labels.end());
  std::vector<Positions> classes(static_cast<std::size_t>(highest) + 1);
  for (std::size_t i = 0; i < labels.size(); ++i)
    classes[static_cast<std::size_t>(labels[i])].push_back(static_cast<std::int64_t>(i));
  std::erase_if(classes, [](const Positions& own) { return own.empty(); });
  return classes;
}

// Returns the number of samples of each class. The remainders to the exact fractions are kept as
// integers, count * size - taken * total, so that nothing is rounded.
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
  // Among equal claims the first class gets one more, and the last one gives one up.
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

}  // namespace io
