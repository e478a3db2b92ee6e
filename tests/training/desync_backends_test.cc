// The comparison of replicas over every backend that joins processes of this host: a flipped bit is
// found, repaired, or ends all ranks with code 76.
#include <gtest/gtest.h>

#include <cstring>

#include "backends/compose/table/backend_table.h"
#include "tests/training/session_runner.h"
#include "tools/launch/group/run_group.h"
#include "tools/report/output/exit_codes.h"
#include "tools/run/session/train_session.h"

namespace {

constexpr int kDesyncRanks = 3, kFaulty = 2, kStep = 4;

// Flips a bit on one rank and keeps what the comparison said.
class Fault : public engine::TrainObserver {
 public:
  Fault(tools::TrainSession& session, int rank, engine::DesyncReport& found)
      : session_(session), rank_(rank), found_(found) {}
  void on_step(const engine::TrainProgress& progress) override {
    if (rank_ != kFaulty || progress.global_step != kStep) return;
    auto* element = static_cast<std::uint32_t*>(session_.state().model.parameters.values.data());
    *element ^= 1;
  }
  void on_desync(const engine::TrainProgress&, const engine::DesyncReport& report) override {
    found_ = report;
  }

 private:
  tools::TrainSession& session_;
  const int rank_;
  engine::DesyncReport& found_;
};

// The exit code of a group of processes.
int exit_code_of(const std::string& backend, const std::string& action) {
  const tools::RunConfig config =
      session_runner::make_config("model=convnet synthetic-shape=8x8x1 steps=9 log-every=0 spawn=" +
                                  std::to_string(kDesyncRanks) + " backend=" + backend +
                                  " timeout=20 verify-every=6 on-desync=" + action);
  return tools::run_group(config, [&](backends::Group& group) {
    const std::atomic<int> never{0};
    engine::DesyncReport found;
    tools::TrainSession session(config, group);
    static_cast<void>(session.start_state());
    session.add_observer(std::make_unique<Fault>(session, group.rank(), found));
    static_cast<void>(session.run(never));
    const bool right = found.step == 6 && found.ranks == std::vector<int>{kFaulty} &&
                       found.tensors.size() == 1 && found.first_bad > kStep &&
                       found.last_good <= kStep && found.repaired;
    return right ? 0 : 1;
  });
}

class DesyncOver : public testing::TestWithParam<std::string> {};

TEST_P(DesyncOver, IsRepairedAndEndsAllRanksWith76) {
  EXPECT_EQ(exit_code_of(GetParam(), "repair"), 0);
  EXPECT_EQ(exit_code_of(GetParam(), "abort"), tools::kExitMismatch);
}

std::vector<std::string> process_backends() {
  std::vector<std::string> names;
  for (const backends::BackendInfo& b : backends::list_backends())
    if (b.usable && !b.device_memory && b.name != "inproc") names.push_back(b.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Backends, DesyncOver, testing::ValuesIn(process_backends()),
                         [](const auto& of) { return of.param; });

}  // namespace
