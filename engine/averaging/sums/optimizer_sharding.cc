// Assigns slices of buckets, or whole tensors by size, to ranks.
#include "engine/averaging/sums/optimizer_sharding.h"

#include <algorithm>
#include <numeric>

#include "engine/ops/optim_step/optimizer_step.h"

namespace engine {
namespace {

// Merges adjacent parts.
void append(std::vector<Elements>& parts, const Elements& part) {
  if (part.count == 0) return;
  if (!parts.empty() && parts.back().first + parts.back().count == part.first)
    parts.back().count += part.count;
  else
    parts.push_back(part);
}

}  // namespace

std::int64_t shard_alignment(int world) { return ops::kSquaresBlock * world; }

BucketOptions sharded_buckets(BucketOptions buckets, int world) {
  buckets.multiple = shard_alignment(world);
  return buckets;
}

OptimizerShards shard_elements(const ParameterBuffer& parameters, const BucketOptions& buckets,
                               int rank, int world) {
  const std::int64_t unit = shard_alignment(world), trained = parameters.gradients.size();
  require(buckets.multiple == unit, "buckets are cut as they are dealt out");
  OptimizerShards shares{rank, std::vector<std::vector<Elements>>(static_cast<std::size_t>(world))};
  const auto assign_blocks = [&](std::int64_t first, std::int64_t end, std::int64_t block) {
    for (std::vector<Elements>& parts : shares.of_rank) {
      const std::int64_t count = std::min(block, end - first);
      append(parts, {first, count});
      first += count;
    }
  };
  std::int64_t first = 0;
  for (const std::int64_t end :
       bucket_ends(trained, size_of(parameters.gradients.dtype()), buckets.bytes, unit)) {
    const std::int64_t whole = (end - first) / unit * unit;
    assign_blocks(first, first + whole, whole / world);
    assign_blocks(first + whole, end, ops::kSquaresBlock);
    first = end;
  }
  const std::int64_t frozen = parameters.values.size() - trained, gap = 64;
  assign_blocks(trained, parameters.values.size(), (frozen / world / gap + 1) * gap);
  return shares;
}

std::vector<int> assign_owners(const std::vector<std::int64_t>& sizes, int world) {
  std::vector<std::size_t> by_size(sizes.size());
  std::iota(by_size.begin(), by_size.end(), std::size_t{0});
  std::ranges::stable_sort(by_size,
                           [&](std::size_t a, std::size_t b) { return sizes[a] > sizes[b]; });
  std::vector<std::int64_t> loads(static_cast<std::size_t>(world));
  std::vector<int> owners(sizes.size());
  for (const std::size_t tensor : by_size) {
    const auto least = std::ranges::min_element(loads);
    *least += sizes[tensor];
    owners[tensor] = static_cast<int>(least - loads.begin());
  }
  return owners;
}

Elements slot_with_gap(const FlatBuffer& buffer, std::size_t slot) {
  const auto slots = buffer.slots();
  const std::int64_t first = slots[slot].offset;
  return {first, (slot + 1 < slots.size() ? slots[slot + 1].offset : buffer.size()) - first};
}

OptimizerShards shard_tensors(const FlatBuffer& values, int rank, int world) {
  const auto slots = values.slots();
  std::vector<std::int64_t> sizes;
  for (const FlatBuffer::Slot& slot : slots) sizes.push_back(slot.count);
  const std::vector<int> owners = assign_owners(sizes, world);
  OptimizerShards shares{rank, std::vector<std::vector<Elements>>(static_cast<std::size_t>(world))};
  for (std::size_t slot = 0; slot < slots.size(); ++slot)
    append(shares.of_rank[static_cast<std::size_t>(owners[slot])], slot_with_gap(values, slot));
  return shares;
}

}  // namespace engine
