// Merges the pair of the lowest rank, the leftmost one first, until none is left.
#include "io/tokenizer/byte_pairs.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <queue>
#include <tuple>

#include "io/base/files/io_error.h"
#include "io/base/text/escape_text.h"

namespace io {
namespace {

constexpr std::size_t kShort = 48;  // up to this many bytes, a search for each merge is faster

}  // namespace

BytePairs::BytePairs(const std::string& source,
                     std::unordered_map<std::string, std::int32_t> tokens,
                     std::span<const std::pair<std::string, std::string>> merges, bool whole_first)
    : whole_first_(whole_first) {
  tokens_.reserve(tokens.size());
  for (auto& [text, id] : tokens) tokens_.emplace(text, id);
  const auto id_of = [&](const std::string& text) {
    const auto found = tokens_.find(text);
    if (found != tokens_.end()) return found->second;
    throw DataError(source + ": the vocabulary lacks '" + base::escape_text(text) +
                    "', which a merge needs");
  };
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = tokens_.find(std::string(1, static_cast<char>(byte)));
    if (found == tokens_.end())
      throw DataError(source + ": the vocabulary lacks byte " + std::to_string(byte) +
                      "; expected a byte-level vocabulary, with a token for each byte");
    of_byte_.push_back(found->second);
  }
  merges_.reserve(merges.size());
  std::int32_t rank = 0;
  for (const auto& [left, right] : merges)
    merges_.emplace(key(id_of(left), id_of(right)), Merge{rank++, id_of(left + right)});
}

void BytePairs::encode(std::string_view piece, std::vector<std::int32_t>& ids) const {
  if (piece.size() == 1 || whole_first_) {
    if (const auto whole = tokens_.find(piece); whole != tokens_.end()) {
      ids.push_back(whole->second);
      return;
    }
  }
  const std::size_t first = ids.size();
  for (const char byte : piece) ids.push_back(of_byte_[static_cast<unsigned char>(byte)]);
  piece.size() <= kShort ? merge(ids, first) : merge_long(ids, first);
}

void BytePairs::merge(std::vector<std::int32_t>& ids, std::size_t first) const {
  constexpr std::int32_t kNone = std::numeric_limits<std::int32_t>::max();
  std::array<Merge, kShort> merges;  // each id with the next one
  std::size_t count = ids.size() - first;
  const auto find = [&](std::size_t i) {
    const auto found = merges_.find(key(ids[first + i], ids[first + i + 1]));
    merges[i] = found == merges_.end() ? Merge{kNone, 0} : found->second;
  };
  for (std::size_t i = 0; i + 1 < count; ++i) find(i);
  while (count > 1) {
    const auto end = merges.begin() + static_cast<std::ptrdiff_t>(count - 1);
    const auto lowest = std::ranges::min_element(merges.begin(), end, {}, &Merge::rank);
    if (lowest->rank == kNone) break;
    const auto i = static_cast<std::size_t>(lowest - merges.begin());
    ids[first + i] = lowest->id;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(first + i + 1));
    std::copy(lowest + 1, end, lowest);
    --count;
    if (i + 1 < count) find(i);
    if (i > 0) find(i - 1);
  }
  ids.resize(first + count);
}

// The ids of a long piece form a list; candidates are in a heap, where some are out of date.
void BytePairs::merge_long(std::vector<std::int32_t>& ids, std::size_t first) const {
  struct Node {
    std::int32_t id;
    std::int64_t before, after;  // -1: none; a node that has been merged has the id -1
  };
  const auto count = static_cast<std::int64_t>(ids.size() - first);
  std::vector<Node> nodes;
  nodes.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i)
    nodes.push_back({ids[first + static_cast<std::size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
  using Candidate = std::tuple<std::int32_t, std::int64_t, std::uint64_t, std::int32_t>;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto at = [&](std::int64_t i) -> Node& { return nodes[static_cast<std::size_t>(i)]; };
  const auto pair_at = [&](std::int64_t i) { return key(at(i).id, at(at(i).after).id); };
  const auto add = [&](std::int64_t i) {
    if (i < 0 || at(i).after < 0) return;
    if (const auto found = merges_.find(pair_at(i)); found != merges_.end())
      candidates.emplace(found->second.rank, i, pair_at(i), found->second.id);
  };
  for (std::int64_t i = 0; i < count; ++i) add(i);
  while (!candidates.empty()) {
    const auto [rank, i, pair, merged] = candidates.top();
    candidates.pop();
    if (at(i).id < 0 || at(i).after < 0 || pair_at(i) != pair) continue;
    const std::int64_t gone = at(i).after;
    at(i).id = merged;
    at(i).after = at(gone).after;
    at(gone).id = -1;
    if (at(i).after >= 0) at(at(i).after).before = i;
    add(at(i).before);
    add(i);
  }
  ids.resize(first);
  for (std::int64_t i = 0; i >= 0; i = at(i).after) ids.push_back(at(i).id);
}

}  // namespace io
