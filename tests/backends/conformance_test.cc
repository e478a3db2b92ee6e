// One suite for every backend: what each collective must give, bit for bit, on every rank and in every run.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <random>
#include <thread>

#include "backends/reduction.h"
#include "tests/backends/group_harness.h"

namespace {

using backends::Communicator;
using backends::DataType;
using backends::Group;
using backends::ReduceOp;
using Bytes = std::vector<unsigned char>;

constexpr std::size_t kCounts[] = {0, 1, 7, 8, 9, 10007, 100000};
constexpr DataType kTypes[] = {DataType::kF32, DataType::kF64, DataType::kI64, DataType::kU8};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin};

template <typename T>
void store(Bytes& bytes, std::size_t i, T value) {
  std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
}

template <typename T>
T special(std::size_t which) {
  using Limits = std::numeric_limits<T>;
  const T values[] = {
      Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN(), Limits::denorm_min(), -Limits::denorm_min(), T(0), -T(0),
      Limits::max()};
  return values[which % 8];
}

// What rank `rank` brings: numbers of very different sizes, so that the order of additions shows, and special values.
Bytes input_of(int rank, std::size_t count, DataType type) {
  std::mt19937_64 random(1000 * static_cast<std::uint64_t>(rank) + count + 7 * static_cast<std::uint64_t>(type));
  Bytes bytes(count * backends::size_of(type));
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t r = random();
    const bool is_special = i % 97 == 5 && (r & 1) != 0;
    const double number = std::ldexp(static_cast<double>(static_cast<std::int64_t>(r)), static_cast<int>(r % 31) - 70);
    switch (type) {
      case DataType::kF32:
        store(bytes, i, is_special ? special<float>(r >> 8) : static_cast<float>(number));
        break;
      case DataType::kF64:
        store(bytes, i, is_special ? special<double>(r >> 8) : number);
        break;
      case DataType::kI64:
        store(bytes, i, static_cast<std::int64_t>(r));
        break;
      case DataType::kU8:
        store(bytes, i, static_cast<std::uint8_t>(r));
        break;
    }
  }
  return bytes;
}

// The fold in rank order, in plain scalar code of its own.
template <typename T>
T combine(T a, T b, ReduceOp op) {
  if (op == ReduceOp::kSum) {
    if constexpr (std::is_same_v<T, std::int64_t>)
      return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
    return static_cast<T>(a + b);
  }
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a)) return a;
    if (std::isnan(b)) return b;
  }
  return op == ReduceOp::kMax ? (b > a ? b : a) : (b < a ? b : a);
}

template <typename T>
bool same_value(const unsigned char* a, const unsigned char* b) {
  T x, y;
  std::memcpy(&x, a, sizeof(T));
  std::memcpy(&y, b, sizeof(T));
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
  }
  return std::memcmp(a, b, sizeof(T)) == 0;
}

template <typename T>
::testing::AssertionResult is_fold(const Bytes& result, int world_size, std::size_t count, DataType type, ReduceOp op,
                                   std::size_t begin, std::size_t end) {
  std::vector<Bytes> inputs;
  for (int r = 0; r < world_size; ++r) inputs.push_back(input_of(r, count, type));
  for (std::size_t i = begin; i < end; ++i) {
    T sum{}, next{};
    std::memcpy(&sum, inputs[0].data() + i * sizeof(T), sizeof(T));
    for (int r = 1; r < world_size; ++r) {
      std::memcpy(&next, inputs[static_cast<std::size_t>(r)].data() + i * sizeof(T), sizeof(T));
      sum = combine(sum, next, op);
    }
    if (!same_value<T>(result.data() + i * sizeof(T), reinterpret_cast<unsigned char*>(&sum))) {
      return ::testing::AssertionFailure()
             << "element " << i << " of " << count << ' ' << to_string(type) << ' ' << to_string(op);
    }
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult is_reduction(const Bytes& result, int world_size, std::size_t count, DataType type, ReduceOp op,
                                        std::size_t begin, std::size_t end) {
  switch (type) {
    case DataType::kF32:
      return is_fold<float>(result, world_size, count, type, op, begin, end);
    case DataType::kF64:
      return is_fold<double>(result, world_size, count, type, op, begin, end);
    case DataType::kI64:
      return is_fold<std::int64_t>(result, world_size, count, type, op, begin, end);
    case DataType::kU8:
      return is_fold<std::uint8_t>(result, world_size, count, type, op, begin, end);
  }
  return ::testing::AssertionFailure();
}

struct Case {
  std::string backend;
  int world_size;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.backend << " x " << c.world_size; }

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string& backend : group_harness::backend_names()) {
    for (const int world : {1, 2, 3, 4}) {
      if (group_harness::backend_fits(backend, world)) all.push_back({backend, world});
    }
  }
  return all;
}

class Conformance : public ::testing::TestWithParam<Case> {
 protected:
  int world() const { return GetParam().world_size; }
  void each_rank(const std::function<void(Communicator&)>& body) {
    group_harness::run_ranks(GetParam().backend, world(), [&](Group& group) {
      ASSERT_EQ(group.backend(), GetParam().backend);
      const std::unique_ptr<Communicator> communicator = group.make_communicator();
      ASSERT_EQ(communicator->name(), GetParam().backend);
      ASSERT_EQ(communicator->world_size(), world());
      body(*communicator);
    });
  }
};

TEST_P(Conformance, AllReduceIsTheFoldInRankOrderWithEqualBitsEverywhere) {
  std::mutex mutex;
  std::vector<std::vector<Bytes>> results(static_cast<std::size_t>(world()));  // [rank][call]
  each_rank([&](Communicator& c) {
    std::vector<Bytes> mine;
    for (const std::size_t count : kCounts) {
      for (const DataType type : kTypes) {
        for (const ReduceOp op : kOps) {
          for (int run = 0; run < 2; ++run) {
            mine.push_back(input_of(c.rank(), count, type));
            c.all_reduce(mine.back().data(), count, type, op);
          }
          EXPECT_EQ(mine[mine.size() - 1], mine[mine.size() - 2]) << "another run, other bits";
        }
      }
    }
    const std::lock_guard lock(mutex);
    results[static_cast<std::size_t>(c.rank())] = std::move(mine);
  });
  for (int r = 1; r < world(); ++r)
    EXPECT_TRUE(results[static_cast<std::size_t>(r)] == results[0]) << "rank " << r << " has other bits than rank 0";
  std::size_t call = 0;
  for (const std::size_t count : kCounts) {
    for (const DataType type : kTypes) {
      for (const ReduceOp op : kOps) {
        EXPECT_TRUE(is_reduction(results[0].at(call), world(), count, type, op, 0, count));
        call += 2;
      }
    }
  }
}

TEST_P(Conformance, AllReduceWorksOnUnalignedMemory) {
  each_rank([&](Communicator& c) {
    const std::size_t count = 10007;
    Bytes room(1 + count * 4);
    const Bytes input = input_of(c.rank(), count, DataType::kF32);
    std::copy(input.begin(), input.end(), room.begin() + 1);
    c.all_reduce(room.data() + 1, count, DataType::kF32, ReduceOp::kSum);
    EXPECT_TRUE(is_reduction(Bytes(room.begin() + 1, room.end()), world(), count, DataType::kF32, ReduceOp::kSum, 0, count));
  });
}

TEST_P(Conformance, ReduceScatterGivesEachRankItsShare) {
  each_rank([&](Communicator& c) {
    for (const std::size_t count : kCounts) {
      Bytes data = input_of(c.rank(), count, DataType::kF64);
      c.reduce_scatter(data.data(), count, DataType::kF64, ReduceOp::kSum);
      const auto n = static_cast<std::size_t>(world()), r = static_cast<std::size_t>(c.rank());
      EXPECT_TRUE(is_reduction(data, world(), count, DataType::kF64, ReduceOp::kSum, r * count / n, (r + 1) * count / n));
    }
  });
}

TEST_P(Conformance, BroadcastCopiesTheRoot) {
  each_rank([&](Communicator& c) {
    for (const std::size_t bytes : kCounts) {
      for (int root = 0; root < world(); ++root) {
        Bytes data = input_of(c.rank(), bytes, DataType::kU8);
        c.broadcast(data.data(), bytes, root);
        EXPECT_EQ(data, input_of(root, bytes, DataType::kU8));
      }
    }
    EXPECT_THROW(c.broadcast(nullptr, 0, world()), std::exception);
  });
}

TEST_P(Conformance, AllGatherConcatenatesInRankOrder) {
  each_rank([&](Communicator& c) {
    for (const std::size_t bytes : kCounts) {
      const Bytes mine = input_of(c.rank(), bytes, DataType::kU8);
      Bytes all(bytes * static_cast<std::size_t>(world())), expected;
      c.all_gather(mine.data(), bytes, all.data());
      for (int r = 0; r < world(); ++r) {
        const Bytes theirs = input_of(r, bytes, DataType::kU8);
        expected.insert(expected.end(), theirs.begin(), theirs.end());
      }
      EXPECT_EQ(all, expected);
    }
  });
}

TEST_P(Conformance, NobodyPassesABarrierEarly) {
  std::atomic<int> arrived{0};
  each_rank([&](Communicator& c) {
    for (int round = 1; round <= 20; ++round) {
      ++arrived;
      c.barrier();
      EXPECT_GE(arrived.load(), round * world());
      c.barrier();
    }
  });
}

TEST_P(Conformance, CommunicatorsDoNotDisturbEachOther) {
  group_harness::run_ranks(GetParam().backend, world(), [&](Group& group) {
    const auto a = group.make_communicator(), b = group.make_communicator();
    std::thread other([&] {
      for (int i = 0; i < 50; ++i) {
        float one = 1;
        b->all_reduce(&one, 1, DataType::kF32, ReduceOp::kSum);
        EXPECT_EQ(one, static_cast<float>(world()));
      }
    });
    for (int i = 0; i < 50; ++i) {
      std::int64_t rank = group.rank();
      a->all_reduce(&rank, 1, DataType::kI64, ReduceOp::kMax);
      EXPECT_EQ(rank, world() - 1);
    }
    other.join();
  });
}

INSTANTIATE_TEST_SUITE_P(Backends, Conformance, ::testing::ValuesIn(cases()), [](const auto& which) {
  return which.param.backend + "_" + std::to_string(which.param.world_size);
});

}  // namespace
