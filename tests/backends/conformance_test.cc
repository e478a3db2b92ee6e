// One suite for every backend: what each collective must give, bit for bit, on every rank and in
// every run.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <string_view>
#include <thread>
#include <tuple>

#include "backends/reduction.h"
#include "tests/backends/group_harness.h"

namespace {

using backends::Communicator;
using backends::Group;
using backends::ReduceOp;
using base::DType;
using Bytes = std::vector<unsigned char>;

constexpr DType kTypes[] = {DType::kF32, DType::kF64, DType::kI64,
                            DType::kU8,  DType::kF16, DType::kBF16};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin};

template <typename T>
void store(Bytes& bytes, std::size_t i, T value) {
  std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
}

template <typename T>
T special(std::size_t which) {
  using Limits = std::numeric_limits<T>;
  const T values[] = {Limits::infinity(),
                      -Limits::infinity(),
                      Limits::quiet_NaN(),
                      Limits::denorm_min(),
                      -Limits::denorm_min(),
                      T(0),
                      -T(0),
                      Limits::max()};
  return values[which % 8];
}

// 2^-70 to 2^-40.
double small_power(std::uint64_t which) {
  static const std::vector<double> powers = [] {
    std::vector<double> all(31);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = std::ldexp(1.0, static_cast<int>(i) - 70);
    return all;
  }();
  return powers[which % powers.size()];
}

// The numbers of SplitMix64, which cost a tenth of those of std::mt19937_64.
std::uint64_t next_random(std::uint64_t& state) {
  std::uint64_t z = state += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

Bytes make_input(int rank, std::size_t count, DType type) {
  std::uint64_t state =
      1000 * static_cast<std::uint64_t>(rank) + count + 7 * static_cast<std::uint64_t>(type);
  Bytes bytes(count * base::size_of(type));
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t r = next_random(state);
    const bool is_special = i % 97 == 5 && (r & 1) != 0;
    const double number = static_cast<double>(static_cast<std::int64_t>(r)) * small_power(r);
    switch (type) {
      case DType::kF32:
        store(bytes, i, is_special ? special<float>(r >> 8) : static_cast<float>(number));
        break;
      case DType::kF64:
        store(bytes, i, is_special ? special<double>(r >> 8) : number);
        break;
      case DType::kI64:
        store(bytes, i, static_cast<std::int64_t>(r));
        break;
      case DType::kU8:
        store(bytes, i, static_cast<std::uint8_t>(r));
        break;
      case DType::kF16:
      case DType::kBF16:
        // Every kind of value by its bits: normal, subnormal, infinite, NaN. Most are kept
        // moderate.
        store(bytes, i,
              static_cast<std::uint16_t>(is_special ? r >> 16 : (r >> 16 & 0xbfff) | 0x2000));
        break;
      case DType::kI32:
        break;
    }
  }
  return bytes;
}

// What rank `rank` brings: numbers of very different sizes, so that the order of additions shows,
// and special values. Made once: sanitized, that takes longer than the collectives.
const Bytes& input_of(int rank, std::size_t count, DType type) {
  static std::mutex mutex;
  static std::map<std::tuple<int, std::size_t, DType>, Bytes> made;
  const std::lock_guard lock(mutex);
  const auto [place, is_new] = made.try_emplace({rank, count, type});
  if (is_new) place->second = make_input(rank, count, type);
  return place->second;
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

// 16-bit formats by their definition: sign, exponent, fraction, in double, where every sum of two
// is exact.
struct Half {
  std::uint16_t bits;
};
struct Brain {
  std::uint16_t bits;
};
double decode_by_definition(std::uint16_t bits, int exponent_bits) {
  const int fraction_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits & 0x7fff) >> fraction_bits,
            fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1)
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}
// Returns the numbers of all bit patterns.
const double* decoded(int exponent_bits) {
  const auto all = [](int exponent_bits_of_all) {
    std::vector<double> values(65536);
    for (std::size_t b = 0; b < values.size(); ++b)
      values[b] = decode_by_definition(static_cast<std::uint16_t>(b), exponent_bits_of_all);
    return values;
  };
  static const std::vector<double> half = all(5), brain = all(8);
  return (exponent_bits == 5 ? half : brain).data();
}
double decode(std::uint16_t bits, int exponent_bits) { return decoded(exponent_bits)[bits]; }
// The nearest value, ties to even, found by search over the format's ordered bit patterns.
std::uint16_t encode(double value, int exponent_bits) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const auto infinity =
      static_cast<std::uint16_t>(((1 << exponent_bits) - 1) << (15 - exponent_bits));
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | infinity | 1);
  value = std::fabs(value);
  const double* values = decoded(exponent_bits);
  std::uint16_t low = 0, high = infinity;
  while (high - low > 1) {
    const auto middle = static_cast<std::uint16_t>((low + high) / 2);
    (values[middle] <= value ? low : high) = middle;
  }
  if (value == std::numeric_limits<double>::infinity())
    return static_cast<std::uint16_t>(sign | infinity);
  const double below = values[low];
  // Past the largest number the next step would have been as long as the last one.
  const double above = high == infinity ? 2 * below - values[low - 1] : values[high];
  const bool up =
      value - below > above - value || (value - below == above - value && (low & 1) != 0);
  return static_cast<std::uint16_t>(sign | (up ? high : low));
}

template <typename Format>
Format combine_sixteen(Format a, Format b, ReduceOp op, int exponent_bits) {
  const double x = decode(a.bits, exponent_bits), y = decode(b.bits, exponent_bits),
               result = combine(x, y, op);
  if (op == ReduceOp::kSum) return {encode(result, exponent_bits)};
  return std::memcmp(&result, &x, sizeof x) == 0 ? a : b;
}
Half combine(Half a, Half b, ReduceOp op) { return combine_sixteen(a, b, op, 5); }
Brain combine(Brain a, Brain b, ReduceOp op) { return combine_sixteen(a, b, op, 8); }
bool is_nan(Half v) { return std::isnan(decode(v.bits, 5)); }
bool is_nan(Brain v) { return std::isnan(decode(v.bits, 8)); }
template <typename T>
bool is_nan(T v) {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(v);
  return false;
}

template <typename T>
bool same_value(const unsigned char* a, const unsigned char* b) {
  T x, y;
  std::memcpy(&x, a, sizeof(T));
  std::memcpy(&y, b, sizeof(T));
  if (is_nan(x) || is_nan(y)) return is_nan(x) && is_nan(y);
  return std::memcmp(a, b, sizeof(T)) == 0;
}

// In which order ranks are folded: those of a host first. A flat fold is one of a single host.
using Hosts = std::vector<std::vector<int>>;

// Elements [begin, end); the others are 0.
template <typename T>
Bytes fold(const Hosts& hosts, std::size_t count, DType type, ReduceOp op, std::size_t begin,
           std::size_t end) {
  std::vector<std::vector<const unsigned char*>> inputs(hosts.size());
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    for (const int r : hosts[h]) inputs[h].push_back(input_of(r, count, type).data());
  }
  Bytes result(count * sizeof(T));
  for (std::size_t i = begin; i < end; ++i) {
    T sum{};
    for (std::size_t h = 0; h < inputs.size(); ++h) {
      T of_host{}, next{};
      for (std::size_t r = 0; r < inputs[h].size(); ++r) {
        std::memcpy(&next, inputs[h][r] + i * sizeof(T), sizeof(T));
        of_host = r == 0 ? next : combine(of_host, next, op);
      }
      sum = h == 0 ? of_host : combine(sum, of_host, op);
    }
    store(result, i, sum);
  }
  return result;
}

template <typename T>
::testing::AssertionResult same_values(const Bytes& result, const Bytes& expected,
                                       std::size_t begin, std::size_t end) {
  if (begin == end ||
      std::memcmp(result.data() + begin * sizeof(T), expected.data() + begin * sizeof(T),
                  (end - begin) * sizeof(T)) == 0)
    return ::testing::AssertionSuccess();
  for (std::size_t i = begin; i < end; ++i) {
    if (!same_value<T>(result.data() + i * sizeof(T), expected.data() + i * sizeof(T)))
      return ::testing::AssertionFailure() << "element " << i;
  }
  return ::testing::AssertionSuccess();
}

template <typename T>
::testing::AssertionResult is_fold(const Bytes& result, const Hosts& hosts, std::size_t count,
                                   DType type, ReduceOp op, std::size_t begin, std::size_t end) {
  const auto same = same_values<T>(result, fold<T>(hosts, count, type, op, begin, end), begin, end);
  if (same) return same;
  return ::testing::AssertionFailure()
         << same.message() << " of " << count << ' ' << to_string(type) << ' ' << to_string(op);
}

::testing::AssertionResult is_reduction(const Bytes& result, const Hosts& hosts, std::size_t count,
                                        DType type, ReduceOp op, std::size_t begin,
                                        std::size_t end) {
  switch (type) {
    case DType::kF32:
      return is_fold<float>(result, hosts, count, type, op, begin, end);
    case DType::kF64:
      return is_fold<double>(result, hosts, count, type, op, begin, end);
    case DType::kI64:
      return is_fold<std::int64_t>(result, hosts, count, type, op, begin, end);
    case DType::kU8:
      return is_fold<std::uint8_t>(result, hosts, count, type, op, begin, end);
    case DType::kF16:
      return is_fold<Half>(result, hosts, count, type, op, begin, end);
    case DType::kBF16:
      return is_fold<Brain>(result, hosts, count, type, op, begin, end);
    case DType::kI32:
      break;
  }
  return ::testing::AssertionFailure();
}

// Around the number of ranks, around the limits of small messages and of blocks, odd and large.
std::vector<std::size_t> counts_for(int world_size) {
  const auto n = static_cast<std::size_t>(world_size);
  return {0, 1, n - 1, n, n + 1, 2048, 4097, 10007, 100003};
}

struct ConformanceCase {
  std::string backend;
  int world_size;
};
void PrintTo(const ConformanceCase& c, std::ostream* out) {
  *out << c.backend << " x " << c.world_size;
}

std::vector<ConformanceCase> cases() {
  std::vector<ConformanceCase> all;
  for (const std::string& backend : group_harness::backend_names()) {
    for (const int world : {1, 2, 3, 4, 7, 8}) {
      if (group_harness::backend_fits(backend, world)) all.push_back({backend, world});
    }
  }
  return all;
}

class Conformance : public ::testing::TestWithParam<ConformanceCase> {
 protected:
  int world() const { return GetParam().world_size; }
  Hosts hosts() const {
    Hosts hosts(1);
    for (int r = 0; r < world(); ++r) {
      const auto host = static_cast<std::size_t>(
          GetParam().backend.rfind("shm+", 0) == 0 ? group_harness::host_of(r, world()) : 0);
      hosts.resize(std::max(hosts.size(), host + 1));
      hosts[host].push_back(r);
    }
    return hosts;
  }
  void each_rank(const std::function<void(Communicator&)>& body) {
    group_harness::run_ranks(GetParam().backend, world(), [&](Group& group) {
      const std::unique_ptr<Communicator> communicator = group.make_communicator();
      ASSERT_EQ(communicator->name(), group.backend());
      if (GetParam().backend != group_harness::kExternal) {
        ASSERT_EQ(group.backend(), GetParam().backend);
      }
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
    for (const std::size_t count : counts_for(world())) {
      for (const DType type : kTypes) {
        for (const ReduceOp op : kOps) {
          mine.push_back(input_of(c.rank(), count, type));
          c.all_reduce(mine.back().data(), count, type, op);
          Bytes again = input_of(c.rank(), count, type);
          c.all_reduce(again.data(), count, type, op);
          EXPECT_TRUE(mine.back() == again) << "another run, other bits";
        }
      }
    }
    const std::lock_guard lock(mutex);
    results[static_cast<std::size_t>(c.rank())] = std::move(mine);
  });
  const int here = group_harness::only_rank().value_or(0);
  const std::vector<Bytes>& one = results[static_cast<std::size_t>(here)];
  for (int r = 0; r < world() && !group_harness::only_rank(); ++r)
    EXPECT_TRUE(results[static_cast<std::size_t>(r)] == one)
        << "rank " << r << " has other bits than rank 0";
  std::size_t call = 0;
  for (const std::size_t count : counts_for(world())) {
    for (const DType type : kTypes) {
      for (const ReduceOp op : kOps) {
        EXPECT_TRUE(is_reduction(one.at(call++), hosts(), count, type, op, 0, count));
      }
    }
  }
}

// Weights of ranks: one rank sums everything, some nothing, all something.
std::vector<std::vector<std::uint32_t>> weights_for(int world_size) {
  const auto n = static_cast<std::size_t>(world_size);
  std::vector<std::uint32_t> last(n, 0), some(n, 0), all(n, 1);
  last.back() = 65536;
  for (std::size_t r = 0; r < n; r += 2) some[r] = static_cast<std::uint32_t>(100 + r);
  all.front() = 40000;
  return {last, some, all};
}

TEST_P(Conformance, UnequalSlicesOfSumsHaveTheSameBits) {
  // Around the limits of heads, small messages and blocks.
  constexpr std::size_t kCounts[] = {1, 4097, 100003, 700001, 20001};
  std::map<std::size_t, Bytes> sums, maxima;  // which all ranks and all weights have to give
  for (const std::size_t count : kCounts) {
    sums[count] = fold<float>(hosts(), count, DType::kF32, ReduceOp::kSum, 0, count);
    maxima[count] = fold<double>(hosts(), count, DType::kF64, ReduceOp::kMax, 0, count);
  }
  group_harness::run_ranks(GetParam().backend, world(), [&](Group& group) {
    for (const std::vector<std::uint32_t>& weights : weights_for(world())) {
      group.divide_sums(weights);
      const std::unique_ptr<Communicator> c = group.make_communicator();
      // The calls in between use the same buffers of the links.
      for (const std::size_t count : kCounts) {
        Bytes data = input_of(c->rank(), count, DType::kF32);
        c->all_reduce(data.data(), count, DType::kF32, ReduceOp::kSum);
        EXPECT_TRUE(same_values<float>(data, sums.at(count), 0, count)) << "of " << count;
        const int root = static_cast<int>(count) % world();
        Bytes sent = input_of(c->rank(), count, DType::kU8);
        c->broadcast(sent.data(), count, root);
        EXPECT_TRUE(sent == input_of(root, count, DType::kU8)) << count << " bytes";
        Bytes shared = input_of(c->rank(), count, DType::kF64);
        c->reduce_scatter(shared.data(), count, DType::kF64, ReduceOp::kMax);
        const backends::ElementRange own = backends::slice_of(count, c->rank(), world());
        EXPECT_TRUE(same_values<double>(shared, maxima.at(count), own.begin, own.end))
            << "of " << count;
      }
    }
  });
}

TEST_P(Conformance, AllReduceWorksOnUnalignedMemory) {
  each_rank([&](Communicator& c) {
    const std::size_t count = 10007;
    Bytes room(1 + count * 4);
    const Bytes input = input_of(c.rank(), count, DType::kF32);
    std::copy(input.begin(), input.end(), room.begin() + 1);
    c.all_reduce(room.data() + 1, count, DType::kF32, ReduceOp::kSum);
    EXPECT_TRUE(is_reduction(Bytes(room.begin() + 1, room.end()), hosts(), count, DType::kF32,
                             ReduceOp::kSum, 0, count));
  });
}

TEST_P(Conformance, ReduceScatterGivesEachRankItsShare) {
  each_rank([&](Communicator& c) {
    for (const std::size_t count : counts_for(world())) {
      Bytes data = input_of(c.rank(), count, DType::kF64);
      c.reduce_scatter(data.data(), count, DType::kF64, ReduceOp::kSum);
      const auto n = static_cast<std::size_t>(world()), r = static_cast<std::size_t>(c.rank());
      EXPECT_TRUE(is_reduction(data, hosts(), count, DType::kF64, ReduceOp::kSum, r * count / n,
                               (r + 1) * count / n));
    }
  });
}

TEST_P(Conformance, BroadcastCopiesTheRoot) {
  each_rank([&](Communicator& c) {
    for (const std::size_t bytes : counts_for(world())) {
      for (int root = 0; root < world(); ++root) {
        Bytes data = input_of(c.rank(), bytes, DType::kU8);
        c.broadcast(data.data(), bytes, root);
        EXPECT_EQ(data, input_of(root, bytes, DType::kU8));
      }
    }
    EXPECT_THROW(c.broadcast(nullptr, 0, world()), std::exception);
  });
}

TEST_P(Conformance, AllGatherConcatenatesInRankOrder) {
  each_rank([&](Communicator& c) {
    for (const std::size_t bytes : counts_for(world())) {
      const Bytes mine = input_of(c.rank(), bytes, DType::kU8);
      Bytes all(bytes * static_cast<std::size_t>(world())), expected;
      c.all_gather(mine.data(), bytes, all.data());
      for (int r = 0; r < world(); ++r) {
        const Bytes theirs = input_of(r, bytes, DType::kU8);
        expected.insert(expected.end(), theirs.begin(), theirs.end());
      }
      EXPECT_EQ(all, expected);
    }
  });
}

TEST_P(Conformance, AllToAllGivesEachRankItsPartsInRankOrder) {
  each_rank([&](Communicator& c) {
    const auto n = static_cast<std::size_t>(world());
    for (const std::size_t bytes : counts_for(world())) {
      const Bytes mine = input_of(c.rank(), bytes * n, DType::kU8);
      // Beyond the end, nothing is written.
      Bytes all(bytes * n + 1, 0xa5), expected;
      c.all_to_all(mine.data(), bytes, all.data());
      for (int r = 0; r < world(); ++r) {
        const Bytes& theirs = input_of(r, bytes * n, DType::kU8);
        const auto own = theirs.begin() + static_cast<std::ptrdiff_t>(bytes) * c.rank();
        expected.insert(expected.end(), own, own + static_cast<std::ptrdiff_t>(bytes));
      }
      expected.push_back(0xa5);
      EXPECT_TRUE(all == expected) << bytes << " bytes";
      EXPECT_TRUE(mine == input_of(c.rank(), bytes * n, DType::kU8)) << "changed its input";
    }
  });
}

// By the clock, which all processes of a host share.
TEST_P(Conformance, NobodyPassesABarrierEarly) {
  const auto now = [] {
    return static_cast<std::int64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  };
  each_rank([&](Communicator& c) {
    for (int round = 0; round < 20; ++round) {
      if (round % world() == c.rank()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      std::int64_t arrived = now();
      c.barrier();
      std::int64_t left = now();
      c.all_reduce(&arrived, 1, DType::kI64, ReduceOp::kMax);
      c.all_reduce(&left, 1, DType::kI64, ReduceOp::kMin);
      EXPECT_GE(left, arrived) << "a rank left before the last one came";
    }
  });
}

// Ranks arrive late in turn, so that others are already in the next call when they receive.
TEST_P(Conformance, ShortCallsOfEveryKindMayFollowEachOther) {
  each_rank([&](Communicator& c) {
    const auto n = static_cast<std::size_t>(world());
    std::minstd_rand random(7);  // with the same numbers on every rank
    for (int round = 0; round < 300; ++round) {
      if (static_cast<int>(random() % n) == c.rank())
        std::this_thread::sleep_for(std::chrono::microseconds(300));
      const auto kind = random() % 5;
      if (kind == 0) {
        c.barrier();
      } else if (kind == 1) {
        std::vector<std::int64_t> sent(n), received(n);
        for (std::size_t to = 0; to < n; ++to)
          sent[to] = round * 1000 + c.rank() * 10 + static_cast<int>(to);
        c.all_to_all(sent.data(), sizeof(std::int64_t), received.data());
        for (std::size_t from = 0; from < n; ++from)
          ASSERT_EQ(received[from], round * 1000 + static_cast<int>(from) * 10 + c.rank());
      } else if (kind == 2) {
        std::int64_t own = round + c.rank();
        std::vector<std::int64_t> all(n);
        c.all_gather(&own, sizeof own, all.data());
        for (std::size_t r = 0; r < n; ++r) ASSERT_EQ(all[r], round + static_cast<int>(r));
      } else {
        std::vector<std::int64_t> sum(kind == 3 ? 1 : 10'000, round + c.rank());
        c.all_reduce(sum.data(), sum.size(), DType::kI64, ReduceOp::kSum);
        ASSERT_EQ(sum.back(), world() * round + world() * (world() - 1) / 2);
      }
    }
  });
}

TEST_P(Conformance, CommunicatorsDoNotDisturbEachOther) {
  group_harness::run_ranks(GetParam().backend, world(), [&](Group& group) {
    const auto a = group.make_communicator(), b = group.make_communicator();
    std::thread other([&] {
      for (int i = 0; i < 50; ++i) {
        float one = 1;
        b->all_reduce(&one, 1, DType::kF32, ReduceOp::kSum);
        EXPECT_EQ(one, static_cast<float>(world()));
      }
    });
    for (int i = 0; i < 50; ++i) {
      std::int64_t rank = group.rank();
      a->all_reduce(&rank, 1, DType::kI64, ReduceOp::kMax);
      EXPECT_EQ(rank, world() - 1);
    }
    other.join();
  });
}

// Bytes in a short form whose equality stands for theirs.
std::uint64_t fingerprint(const Bytes& bytes, std::uint64_t hash = 0) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return (hash * 1099511628211u) ^ std::hash<std::string_view>{}(text);
}

class ProcessConformance : public Conformance {};

TEST_P(ProcessConformance, RanksThatAreProcessesGiveTheSameBits) {
  constexpr std::size_t kSmall = 10007, kLarge = 1'000'000;
  constexpr DType kLargeTypes[] = {DType::kF32, DType::kBF16};
  // Made once: the processes are forks of this one.
  for (int r = 0; r < world(); ++r) {
    for (const DType type : kTypes) input_of(r, kSmall, type);
    for (const DType type : kLargeTypes) input_of(r, kLarge, type);
  }
  const auto work = [&](Group& group) {
    const std::unique_ptr<Communicator> c = group.make_communicator();
    std::uint64_t all = 0;
    std::string wrong;
    const auto reduce = [&](std::size_t count, DType type, ReduceOp op) {
      const Bytes input = input_of(c->rank(), count, type);
      Bytes data = input, again = input;
      c->all_reduce(data.data(), count, type, op);
      c->all_reduce(again.data(), count, type, op);
      if (data != again) wrong = "another run, other bits";
      all = fingerprint(data, all);
      // Each rank checks a part: the fingerprints say that the rest is the same.
      const std::size_t n = static_cast<std::size_t>(world()),
                        r = static_cast<std::size_t>(c->rank());
      const std::size_t begin = r * count / n, end = std::min((r + 1) * count / n, begin + 20'000);
      if (const auto fold = is_reduction(data, hosts(), count, type, op, begin, end); !fold)
        wrong = fold.message();
    };
    for (const DType type : kTypes) {
      for (const ReduceOp op : kOps) reduce(kSmall, type, op);
    }
    for (const DType type : kLargeTypes) reduce(kLarge, type, ReduceOp::kSum);
    return std::to_string(all) + " " + wrong;
  };
  const std::vector<std::string> answers =
      group_harness::run_processes(GetParam().backend, world(), work);
  for (const std::string& answer : answers) EXPECT_EQ(answer, answers[0]);
  EXPECT_EQ(answers[0].back(), ' ') << answers[0];
}

std::string case_name(const ::testing::TestParamInfo<ConformanceCase>& which) {
  std::string name = which.param.backend;
  std::ranges::replace(name, '+', '_');
  return name + "_" + std::to_string(which.param.world_size);
}

std::vector<ConformanceCase> process_cases() {
  std::vector<ConformanceCase> all = cases();
  std::erase_if(all, [](const ConformanceCase& c) {
    return c.world_size == 7 || c.backend == "single" || c.backend == "inproc" ||
           c.backend == "external";
  });
  return all;
}

INSTANTIATE_TEST_SUITE_P(Backends, Conformance, ::testing::ValuesIn(cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Backends, ProcessConformance, ::testing::ValuesIn(process_cases()),
                         case_name);

}  // namespace
