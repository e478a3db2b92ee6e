// Mistakes of a program in calls of groups and communicators, and ranks that leave at different
// calls: every one is an error that names the mistake, at once.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <string>
#include <vector>

#include "engine/collectives.h"
#include "tests/support/time_limits.h"
#include "tests/tools/api/expect_error.h"

namespace {

using namespace engine::api;

std::chrono::milliseconds misuse_limit() {
  return test_support::deadline(std::chrono::seconds(20));
}

TEST(ApiMisuse, MemoryThatIsNullptrIsAConfigurationErrorUnlessItIsEmpty) {
  run_threads(1, [](Group& group) {
    Communicator all = group.make_communicator();
    EXPECT_API_ERROR(all.all_reduce(nullptr, 3, ElementType::kF32, Reduction::kSum),
                     ConfigurationError, 78, "all_reduce: nullptr, 3 elements");
    EXPECT_API_ERROR(all.reduce_scatter(nullptr, 3, ElementType::kF32, Reduction::kSum),
                     ConfigurationError, 78, "reduce_scatter: the memory is nullptr");
    const std::span<std::byte> none(static_cast<std::byte*>(nullptr), 4);
    std::array<std::byte, 4> bytes{};
    EXPECT_API_ERROR(all.broadcast_bytes(none, 0), ConfigurationError, 78,
                     "broadcast: nullptr, 4 bytes");
    EXPECT_API_ERROR(all.all_gather_bytes(none, bytes), ConfigurationError, 78, "all_gather");
    EXPECT_API_ERROR(all.all_gather_bytes(bytes, none), ConfigurationError, 78, "all_gather");
    EXPECT_API_ERROR(all.all_to_all(none, bytes), ConfigurationError, 78, "all_to_all");
    EXPECT_API_ERROR(all.all_to_all(bytes, none), ConfigurationError, 78, "all_to_all");
    all.all_reduce(nullptr, 0, ElementType::kF32, Reduction::kSum);
    all.broadcast_bytes({}, 0);
  });
}

TEST(ApiMisuse, BuffersOfAnAllToAllMustNotOverlap) {
  run_threads(1, [](Group& group) {
    Communicator all = group.make_communicator();
    std::array<std::byte, 6> bytes{};
    const std::span span(bytes);
    EXPECT_API_ERROR(all.all_to_all(span.first(4), span.last(4)), ConfigurationError, 78,
                     "all_to_all: input output overlap");
    all.all_to_all(span.first(3), span.last(3));
  });
}

TEST(ApiMisuse, MembersAreAscendingRanksWithThisOneAmongThem) {
  run_threads(
      2,
      [](Group& group) {
        for (const std::vector<int>& wrong : {std::vector{1, 0}, {0, 0}, {0, 5}, {-1, 0}})
          EXPECT_API_ERROR(
              group.make_communicator(wrong), ConfigurationError, 78,
              "{" + std::to_string(wrong[0]) + ", " + std::to_string(wrong[1]) + "}, 0..1");
        const std::vector<int> other{1 - group.rank()};
        EXPECT_API_ERROR(group.make_communicator(other), ConfigurationError, 78,
                         "expected this rank, " + std::to_string(group.rank()) + ", among them");
        EXPECT_API_ERROR(group.make_messages({1, 0}), ConfigurationError, 78, "{1, 0}, 0..1");
      },
      misuse_limit());
}

TEST(ApiMisuse, AfterLeavingNoCallBegins) {
  Group group = Group::join({.init_method = "tcp://127.0.0.1:1", .rank = 0, .world_size = 1});
  Communicator all = group.make_communicator();
  std::array<float, 1> value{1};
  all.all_reduce(value);
  group.leave();
  EXPECT_API_ERROR(all.barrier(), ConfigurationError, 78, "barrier: left");
  EXPECT_API_ERROR(all.all_reduce(value), ConfigurationError, 78, "all_reduce: left");
  EXPECT_API_ERROR(group.make_communicator(), ConfigurationError, 78, "make_communicator: left");
}

// The timeout of the group is longer than the test may take.
TEST(ApiLeaving, ACallThatARankNoLongerMakesFailsAndNamesIt) {
  constexpr auto kLong = std::chrono::hours(10);
  for (const int leaver : {0, 1, 2})
    EXPECT_API_ERROR(run_threads(
                         3,
                         [&](Group& group) {
                           Communicator all = group.make_communicator();
                           all.barrier();
                           if (group.rank() != leaver) all.barrier();
                         },
                         kLong),
                     PeerError, 69, "rank " + std::to_string(leaver) + " left call 2");
}

TEST(ApiLeaving, ACallThatAllHaveMadeIsCompleteAlthoughARankHasLeft) {
  run_threads(
      3,
      [](Group& group) {
        Communicator all = group.make_communicator();
        for (int i = 0; i < 200; ++i) {
          std::vector<std::int64_t> sum(static_cast<std::size_t>(1 + i), group.rank());
          all.all_reduce(sum);
          EXPECT_EQ(sum.back(), 3);
        }
      },
      misuse_limit());
}

TEST(ApiMisuse, PurposesThatDifferAreAMismatch) {
  EXPECT_API_ERROR(run_threads(
                       2,
                       [](Group& group) {
                         Communicator all = group.make_communicator();
                         std::array<float, 2> values{};
                         all.purpose = 7;
                         all.all_reduce(values);
                         all.purpose = static_cast<std::uint16_t>(1 + group.rank());
                         all.all_reduce(values);
                       },
                       misuse_limit()),
                   MismatchError, 76, "rank 1 calls all_reduce sum of 2 f32 [purpose 2]");
}

}  // namespace
