// Ranks that call different collectives: every one of them learns of it, at once, whatever the
// sizes, and nobody's data is touched.
#include <gtest/gtest.h>

#include "backends/backend_error.h"
#include "tests/backends/group_harness.h"
#include "tests/support/time_limits.h"

namespace {

using backends::Communicator;
using backends::ReduceOp;
using base::DType;

using Data = std::vector<float>;
struct Call {
  const char* name;
  void (*make)(Communicator&, Data&);
};

constexpr std::size_t kSmall = 100, kLarge = 300'000;
void reduce(Communicator& c, Data& data, std::size_t count, ReduceOp op = ReduceOp::kSum) {
  c.all_reduce(data.data(), count, DType::kF32, op);
}

const Call kUsual[] = {
    {"barrier", [](Communicator& c, Data&) { c.barrier(); }},
    {"small_reduce", [](Communicator& c, Data& d) { reduce(c, d, kSmall); }},
    {"large_reduce", [](Communicator& c, Data& d) { reduce(c, d, kLarge); }},
    {"large_broadcast", [](Communicator& c, Data& d) { c.broadcast(d.data(), kLarge * 4, 0); }},
    {"large_gather",
     [](Communicator& c, Data& d) { c.all_gather(d.data(), kLarge, Data(kLarge).data()); }},
    {"large_exchange",
     [](Communicator& c, Data& d) { c.all_to_all(d.data(), kLarge, Data(kLarge).data()); }},
};
const Call kOther[] = {
    {"barrier", [](Communicator& c, Data&) { c.barrier(); }},
    {"small_max", [](Communicator& c, Data& d) { reduce(c, d, kSmall, ReduceOp::kMax); }},
    {"longer_reduce", [](Communicator& c, Data& d) { reduce(c, d, kLarge + 1); }},
    {"other_root", [](Communicator& c, Data& d) { c.broadcast(d.data(), kLarge * 4, 1); }},
    {"shorter_gather",
     [](Communicator& c, Data& d) { c.all_gather(d.data(), kLarge - 4, Data(kLarge).data()); }},
    {"shorter_exchange",
     [](Communicator& c, Data& d) { c.all_to_all(d.data(), kLarge - 4, Data(kLarge).data()); }},
    {"scatter", [](Communicator& c,
                   Data& d) { c.reduce_scatter(d.data(), kLarge, DType::kF32, ReduceOp::kSum); }},
};

class Disagreement : public ::testing::TestWithParam<std::string> {};

enum class End { kInOrder, kAtOnce };

// Rank 1 of 3 calls `other`, after a good call; each rank's outcome. kAtOnce: its connections end
// while others may still wait.
std::vector<std::string> disagree(const std::string& backend, const Call& usual, const Call& other,
                                  End end) {
  std::vector<std::unique_ptr<backends::Group>> groups(3);
  group_harness::Listener listener;
  if (backend == "inproc")
    groups = backends::make_inproc_groups(3, test_support::deadline_ms(20'000));
  else if (backend != group_harness::kExternal)
    listener = group_harness::open_listener();
  return group_harness::outcomes(3, [&](int rank) {
    std::unique_ptr<backends::Group>& group = groups[static_cast<std::size_t>(rank)];
    if (!group) group = group_harness::join(backend, rank, 3, listener);
    Data data(kLarge + 1, 1.f);
    auto communicator = group->make_communicator();
    reduce(*communicator, data, kLarge);
    const Data before = data;
    try {
      (rank == 1 ? other : usual).make(*communicator, data);
    } catch (const backends::Error&) {
      EXPECT_TRUE(data == before) << "rank " << rank << " used what did not belong to its call";
      communicator.reset();
      if (end == End::kInOrder) group->leave();
      group.reset();
      throw;
    }
  });
}

void expect_named(const std::string& backend, const Call& usual, const Call& other, End end) {
  const auto errors = disagree(backend, usual, other, end);
  for (int rank = 0; rank < 3; ++rank) {
    if (group_harness::only_rank().value_or(rank) != rank) continue;
    const std::string& error = errors[static_cast<std::size_t>(rank)];
    EXPECT_EQ(error.rfind("mismatch: ", 0), 0u)
        << usual.name << " and " << other.name << ", rank " << rank << ": " << error;
    EXPECT_NE(error.find("rank 1"), std::string::npos) << error;
  }
}

TEST_P(Disagreement, IsNamedOnEveryRank) {
  for (const Call& usual : kUsual) {
    for (const Call& other : kOther) {
      if (std::string(usual.name) != other.name)
        expect_named(GetParam(), usual, other, End::kInOrder);
    }
  }
}

TEST_P(Disagreement, IsNamedOnEveryRankThoughTheFirstToSeeItEnds) {
  for (const Call& usual : {kUsual[0], kUsual[2], kUsual[4]})
    expect_named(GetParam(), usual, kOther[2], End::kAtOnce);
}

std::vector<std::string> plain_backends() {
  std::vector<std::string> names;
  for (const std::string& name : group_harness::backend_names()) {
    if (name != "single" && group_harness::backend_fits(name, 3) && name.rfind("shm+", 0) != 0)
      names.push_back(name);
  }
  return names;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Disagreement);
INSTANTIATE_TEST_SUITE_P(Backends, Disagreement, ::testing::ValuesIn(plain_backends()),
                         [](const auto& which) { return which.param; });

}  // namespace
