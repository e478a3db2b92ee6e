// Communicators made of others: the comparison of two backends, groups of some ranks, the
// choice by hosts, plug-ins.
#include <gtest/gtest.h>

#include <array>

#include "backends/backend_error.h"
#include "backends/compose/checked/checked_communicator.h"
#include "backends/compose/guard/guarded_communicator.h"
#include "backends/compose/hierarchical/hierarchical_communicator.h"
#include "backends/compose/plugin/backend_plugin.h"
#include "backends/compose/table/backend_table.h"
#include "backends/transport/single/single_communicator.h"
#include "tests/backends/group_harness.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"

namespace {

using backends::Communicator;
using backends::PeerInfo;
using backends::ReduceOp;
using base::DType;

// A backend with one wrong bit.
class Liar final : public Communicator {
 public:
  std::string_view name() const override { return "liar"; }
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  void run(const backends::Call& call) override {
    if (call.word.count > 2) static_cast<char*>(call.data)[9] ^= 1;
  }
  void abort(std::string_view) noexcept override {}
};

class Broken final : public Communicator {
 public:
  std::string_view name() const override { return "broken"; }
  int rank() const override { return 0; }
  int world_size() const override { return 2; }
  void run(const backends::Call&) override { throw backends::PeerError("the connection broke"); }
  void abort(std::string_view) noexcept override {}
};

// Knows of the failure that caused the others only after some time.
class SlowWatch final : public backends::FailureDetector {
 public:
  explicit SlowWatch(std::chrono::milliseconds known_after) : known_after_(known_after) {}
  std::optional<backends::GroupFailure> known_failure(std::chrono::milliseconds wait) override {
    return wait >= known_after_ ? std::optional(backends::GroupFailure{"rank 0 does not answer"})
                                : std::nullopt;
  }
  void abort_on_failure(Communicator&) override {}
  void forget(Communicator&) noexcept override {}
  void retain_until_group_ends(std::shared_ptr<void>) noexcept override {}

 private:
  const std::chrono::milliseconds known_after_;
};

// A rank that notices a silent one ends, and its connections break. This rank may notice the
// silence up to three heartbeats later.
TEST(Guard, WaitsForTheCauseAsLongAsHeartbeatsTake) {
  using std::chrono::milliseconds;
  const auto explained = [](milliseconds heartbeat, milliseconds known_after) {
    SlowWatch watch(known_after);
    try {
      backends::raise_explained(watch, backends::detection_time(heartbeat),
                                "all_reduce: ", "the socket of rank 1 is closed");
    } catch (const backends::PeerError& error) {
      return std::string(error.what());
    }
  };
  EXPECT_VALUES(explained(milliseconds(20'000), milliseconds(59'000)),
                "all_reduce rank 0 answer rank 1");
  EXPECT_VALUES(explained(milliseconds(100), milliseconds(1900)),
                "all_reduce rank 0 answer rank 1");
  EXPECT_VALUES(explained(milliseconds(100), milliseconds(60'000)),
                "all_reduce: the socket of rank 1 is closed");
}

TEST(Guard, NamesAFurtherCause) {
  const auto watch = std::make_shared<SlowWatch>(std::chrono::hours(1));
  const auto guarded =
      backends::guard(std::make_unique<Broken>(),
                      {.watch = watch,
                       .recorder = std::make_shared<backends::FlightRecorder>(),
                       .further_cause = [] { return std::string("; relay n1:5 is silent"); }});
  try {
    guarded->barrier();
    FAIL() << "no error";
  } catch (const backends::PeerError& error) {
    EXPECT_VALUES(error.what(), "broke; relay n1:5 is silent");
  }
}

TEST(Checked, NamesTheFirstDifference) {
  const auto checked = backends::make_checked_communicator(
      "checked:single,liar", backends::make_single_communicator(), std::make_unique<Liar>());
  float values[4] = {1, 2, 3, 4};
  EXPECT_NO_THROW(checked->all_reduce(values, 2, DType::kF32, ReduceOp::kSum));
  try {
    checked->all_reduce(values, 4, DType::kF32, ReduceOp::kSum);
    FAIL() << "a wrong bit went by";
  } catch (const backends::MismatchError& error) {
    EXPECT_STREQ(
        error.what(),
        "backends single and liar disagree on all_reduce sum of 4 f32: first at byte 9 of 16");
  }
}

TEST(Checked, RunsTwoBackendsThatAgree) {
  const std::vector<backends::BackendInfo> all = backends::list_backends();
  for (const backends::BackendInfo& b : all) {
    if (!b.usable || !b.joins_hosts || b.device_memory) continue;
    group_harness::run_ranks("checked:shm," + b.name, 3, [&](backends::Group& group) {
      const auto c = group.make_communicator();
      EXPECT_EQ(c->name(), "checked:shm," + b.name);
      std::vector<double> values(30'000, 0.1 * (c->rank() + 1));
      c->all_reduce(values.data(), values.size(), DType::kF64, ReduceOp::kSum);
      EXPECT_NEAR(values.back(), 0.6, 1e-12);
      c->reduce_scatter(values.data(), values.size(), DType::kF64, ReduceOp::kSum);
      c->broadcast(values.data(), 1000, 2);
      int own = c->rank();
      int everybody[3] = {-1, -1, -1};
      c->all_gather(&own, sizeof own, everybody);
      EXPECT_EQ(everybody[2], 2);
      const int sent[3] = {10 * own, 10 * own + 1, 10 * own + 2};
      c->all_to_all(sent, sizeof own, everybody);
      EXPECT_EQ(everybody[2], 20 + own);
      c->barrier();
    });
  }
}

TEST(Members, SomeRanksHaveACommunicatorOfTheirOwn) {
  for (const std::string& backend : group_harness::backend_names()) {
    if (!group_harness::backend_fits(backend, 4)) continue;
    group_harness::run_ranks(backend, 4, [&](backends::Group& group) {
      const bool odd = group.rank() % 2 != 0;
      const auto half = group.make_communicator(
          {.members = odd ? std::vector<int>{1, 3} : std::vector<int>{0, 2}});
      EXPECT_EQ(half->world_size(), 2);
      EXPECT_EQ(half->rank(), group.rank() / 2);
      std::int64_t sum = group.rank();
      half->all_reduce(&sum, 1, DType::kI64, ReduceOp::kSum);
      EXPECT_EQ(sum, odd ? 4 : 2);
      EXPECT_THROW((void)group.make_communicator(
                       {.members = odd ? std::vector<int>{0, 2} : std::vector<int>{1, 3}}),
                   backends::ConfigurationError);
      group.make_communicator()->barrier();
    });
  }
}

std::vector<PeerInfo> peers_on(const std::vector<std::string>& hosts) {
  std::vector<PeerInfo> peers;
  for (const std::string& host : hosts)
    peers.push_back({static_cast<int>(peers.size()), host, 1, host});
  return peers;
}

std::string plan_name(const std::string& backend, backends::LocalStage stage,
                      const std::vector<std::string>& hosts) {
  return backends::plan_backend(backend, stage, peers_on(hosts)).name;
}

TEST(Plan, FollowsTheHosts) {
  EXPECT_EQ(plan_name("auto", backends::LocalStage::kAuto, {"a"}), "single");
  EXPECT_EQ(plan_name("auto", backends::LocalStage::kAuto, {"a", "a"}), "shm");
  EXPECT_EQ(plan_name("shm", backends::LocalStage::kAuto, {"a", "a"}), "shm");
  std::string across;
  for (const backends::BackendInfo& b : backends::list_backends())
    if (across.empty() && b.usable && b.joins_hosts && !b.device_memory) across = b.name;
  if (across.empty()) GTEST_SKIP() << "this build has no backend between hosts";
  EXPECT_EQ(plan_name("auto", backends::LocalStage::kAuto, {"a", "b"}), across);
  EXPECT_EQ(plan_name("auto", backends::LocalStage::kOff, {"a", "a"}), across);
  EXPECT_EQ(plan_name("auto", backends::LocalStage::kAuto, {"a", "b", "a"}), "shm+" + across);
  EXPECT_EQ(plan_name(across, backends::LocalStage::kAuto, {"a", "a", "b"}), across);
  EXPECT_EQ(plan_name(across, backends::LocalStage::kShm, {"a", "a", "b"}), "shm+" + across);
  EXPECT_EQ(plan_name(across, backends::LocalStage::kShm, {"a", "a"}), "shm");
}

TEST(Plan, RefusesWhatCannotBe) {
  const auto reason = [](const std::string& backend, backends::LocalStage stage,
                         const std::vector<std::string>& hosts) {
    try {
      static_cast<void>(plan_name(backend, stage, hosts));
    } catch (const backends::ConfigurationError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_NE(reason("shm", backends::LocalStage::kAuto, {"a", "a", "b"})
                .find("rank 0 is on a and rank 2 on b"),
            std::string::npos);
  EXPECT_VALUES(reason("inprok", backends::LocalStage::kAuto, {"a", "a"}), "\"inprok\"; auto, shm");
  EXPECT_THROW(backends::parse_local_stage("sometimes"), backends::ConfigurationError);
  EXPECT_NE(reason("checked:shm", backends::LocalStage::kAuto, {"a", "a"}).find("checked:A,B"),
            std::string::npos);
  EXPECT_NE(reason("./no_such_plugin.so", backends::LocalStage::kAuto, {"a", "a"})
                .find("./no_such_plugin.so cannot be loaded"),
            std::string::npos);
}

TEST(Plugin, ForAnOlderVersionIsRejectedWithBoth) {
  try {
    backends::load_backend_plugin(OLD_PLUGIN);
    FAIL() << "it was accepted";
  } catch (const backends::ConfigurationError& error) {
    EXPECT_EQ(std::string(error.what()),
              "backend plug-in " OLD_PLUGIN " was compiled for engine-backend-3, expected " +
                  std::string(backends::kBackendPluginAbi) + ": recompile it");
  }
}

TEST(JoinGroup, RejectsMoreRanksThanACallCanName) {
  EXPECT_EQ(test_support::error_of<backends::ConfigurationError>(
                [] { (void)backends::join_group(group_harness::options_for(0, 65'537, 1)); }),
            "world size 65537: expected 1 to 65536");
}

// Keeps the words of its calls and moves no data.
class WordRecorder final : public Communicator {
 public:
  explicit WordRecorder(std::vector<backends::ControlWord>& words) : words_(words) {}
  std::string_view name() const override { return "recorder"; }
  int rank() const override { return 0; }
  int world_size() const override { return 2; }
  void run(const backends::Call& call) override { words_.push_back(call.word); }
  void abort(std::string_view) noexcept override {}

 private:
  std::vector<backends::ControlWord>& words_;
};

TEST(Hierarchical, TheCallsBetweenHostsHaveNumberAndPurposeOfTheCall) {
  using backends::Operation;
  std::vector<backends::ControlWord> within, across;
  const auto both = backends::make_hierarchical_communicator(
      "both", backends::host_layout(0, peers_on({"a", "a", "b", "b"})),
      std::make_unique<WordRecorder>(within), std::make_unique<WordRecorder>(across));
  std::vector<char> input(1 << 20), output(4 << 20);
  std::uint32_t calls = 0;
  for (const std::size_t bytes : {0, 4, 1 << 20}) {
    for (const Operation operation :
         {Operation::kAllReduce, Operation::kBroadcast, Operation::kAllGather, Operation::kAllToAll,
          Operation::kReduceScatter, Operation::kBarrier}) {
      const bool sums =
          operation == Operation::kAllReduce || operation == Operation::kReduceScatter;
      const std::size_t part = operation == Operation::kAllToAll ? bytes / 4 : bytes;
      const backends::ControlWord word =
          (sums ? backends::reduction_word(operation, ++calls, bytes / 4, DType::kF32,
                                           ReduceOp::kSum)
                : backends::transfer_word(operation, ++calls, part))
              .with_purpose(9);
      within.clear(), across.clear();
      both->run({word, output.data(), input.data()});
      ASSERT_EQ(across.size(), 1u) << to_string(word);
      for (const backends::ControlWord& inner : {within.front(), across.front()}) {
        EXPECT_EQ(inner.sequence, calls) << to_string(word);
        EXPECT_EQ(inner.purpose(), 9) << to_string(word);
      }
    }
  }
}

TEST(Hierarchical, PurposesThatDifferAreAMismatch) {
  using backends::Operation;
  for (const std::string& backend : group_harness::backend_names()) {
    if (backend.rfind("shm+", 0) != 0) continue;
    for (const Operation operation : {Operation::kBarrier, Operation::kAllToAll}) {
      for (const int other : {1, 2}) {  // on the host of rank 0, and on another one
        const group_harness::Listener listener = group_harness::open_listener();
        const auto errors = group_harness::outcomes(3, [&](int rank) {
          auto group = group_harness::join(backend, rank, 3, listener);
          std::array<float, 3> input{}, output{};
          const backends::ControlWord word =
              backends::transfer_word(operation, 1,
                                      operation == Operation::kAllToAll ? sizeof(float) : 0)
                  .with_purpose(rank == other ? 8 : 7);
          group->make_communicator()->run({word, output.data(), input.data()});
        });
        for (const int rank : {0, other})
          EXPECT_EQ(errors[static_cast<std::size_t>(rank)].rfind("mismatch: ", 0), 0u)
              << backend << " " << to_string(operation) << " rank " << rank << ": "
              << errors[static_cast<std::size_t>(rank)];
      }
    }
  }
}

}  // namespace
