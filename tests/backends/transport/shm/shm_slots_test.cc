// Shared memory's areas are used in turn: what a rank left there stays until all have read it, in
// whatever order calls of different kinds follow each other.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "backends/group.h"
#include "tests/backends/group_harness.h"

namespace {

using backends::Communicator;
using backends::Group;

// Numbers whose sums are exact, other ones for each call and rank.
float value_of(int rank, std::size_t call, std::size_t index) {
  return static_cast<float>((index * 7 + call * 13 + static_cast<std::size_t>(rank) * 5) % 1021);
}

float sum_of(int world, std::size_t call, std::size_t index) {
  float sum = 0;
  for (int r = 0; r < world; ++r) sum += value_of(r, call, index);
  return sum;
}

std::vector<float> values_of(int rank, std::size_t call, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = value_of(rank, call, i);
  return values;
}

// How many of [begin, end) are not what `right` says.
template <typename Right>
std::size_t wrong_in(const std::vector<float>& found, std::size_t begin, std::size_t end,
                     const Right& right) {
  std::size_t wrong = 0;
  for (std::size_t i = begin; i < end; ++i) wrong += found[i] != right(i) ? 1 : 0;
  return wrong;
}

std::size_t wrong_after(Communicator& c, std::size_t kind, std::size_t call, std::size_t count) {
  const int world = c.world_size();
  std::vector<float> data = values_of(c.rank(), call, count);
  const auto sum = [&](std::size_t i) { return sum_of(world, call, i); };
  const auto n = static_cast<std::size_t>(world), r = static_cast<std::size_t>(c.rank());
  switch (kind) {
    case 0: {
      const int root = static_cast<int>(call % n);
      c.broadcast(data.data(), count * sizeof(float), root);
      return wrong_in(data, 0, count, [&](std::size_t i) { return value_of(root, call, i); });
    }
    case 1: {
      std::vector<float> all(count * n);
      c.all_gather(data.data(), count * sizeof(float), all.data());
      return wrong_in(all, 0, count * n, [&](std::size_t i) {
        return value_of(static_cast<int>(i / count), call, i % count);
      });
    }
    case 2:
      c.reduce_scatter(data.data(), count, base::DType::kF32, backends::ReduceOp::kSum);
      return wrong_in(data, r * count / n, (r + 1) * count / n, sum);
    case 3: {
      const std::vector<float> input = values_of(c.rank(), call, count * n);
      std::vector<float> all(count * n);
      c.all_to_all(input.data(), count * sizeof(float), all.data());
      return wrong_in(all, 0, count * n, [&](std::size_t i) {
        return value_of(static_cast<int>(i / count), call, r * count + i % count);
      });
    }
    default:
      c.all_reduce(data.data(), count, base::DType::kF32, backends::ReduceOp::kSum);
      return wrong_in(data, 0, count, sum);
  }
}

TEST(ShmSlots, CallsOfAllKindsAndSizesFollowEachOther) {
  for (const int world : {2, 3}) {
    group_harness::run_ranks("shm", world, [&](Group& group) {
      const auto c = group.make_communicator();
      std::mt19937 same(5), own(static_cast<unsigned>(c->rank()) + 17);
      // In the note, in one block, some blocks, and beyond the third-level cache.
      const std::size_t counts[] = {2, 1000, 4097, 70'001, 300'007, 2'500'003};
      for (std::size_t call = 0; call < 120; ++call) {
        const std::size_t kind = same() % 7, size = call % 40 == 39 ? 5 : same() % 5;
        if (own() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 300));
        ASSERT_EQ(wrong_after(*c, kind, call, counts[size]), 0u)
            << world << " ranks, call " << call << ", kind " << kind << ", " << counts[size];
      }
    });
  }
}

}  // namespace
