// What a training needs of the host's memory, and what is said where there is less.
#include "tools/run/choices/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "engine/averaging/sums/optimizer_sharding.h"
#include "engine/core/error.h"
#include "engine/graph/model_state.h"
#include "engine/graph/parameter_kinds.h"
#include "engine/optim/optimizer.h"
#include "io/base/files/io_error.h"
#include "io/base/files/open_file.h"
#include "models/model_catalog.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/time_limits.h"
#include "tools/run/choices/averaging_choice.h"
#include "tools/run/choices/device_codes.h"

namespace {

using tools::MemoryNeed;

class MemoryPlan : public testing::Test {
 protected:
  MemoryNeed need(std::int64_t batch) const {
    return tools::memory_need(graph_, plan_, batch, options_);
  }
  std::string refusal(tools::MemoryBudget budget) const {
    return test_support::error_or<engine::MemoryError>(
        [&] { tools::check_memory(graph_, plan_, options_, budget); }, "");
  }

  const engine::Graph graph_ =
      models::build_model("convnet", {.sample_shape = {28, 28, 1}, .classes = 10});
  engine::PlanOptions plan_{.max_batch = 4096};
  tools::MemoryPlanOptions options_{.optimizer_states = engine::find_optimizer("adamw")->states,
                                    .batches = 3,
                                    .sample_bytes = std::int64_t{4} * 28 * 28,
                                    .data = 1 << 20};
};

TEST_F(MemoryPlan, CountsWhatIsAllocated) {
  const engine::ModelState state = engine::ModelState::allocate(graph_, engine::DType::kF32);
  const engine::Plan plan = engine::Plan::compile(graph_, plan_);
  const MemoryNeed all = need(plan_.max_batch);
  EXPECT_EQ(all.parameters, state.parameters.values.bytes());
  EXPECT_EQ(all.gradients, state.parameters.gradients.bytes());
  EXPECT_EQ(all.optimizer, 2 * all.parameters);
  EXPECT_EQ(all.activations, plan.arena_bytes + plan.scratch_bytes);
  EXPECT_EQ(all.batches, 3u * 4096 * 4 * 28 * 28);
  EXPECT_EQ(all.data, 1u << 20);
  options_.shards = 4;
  EXPECT_EQ(need(1024).parameters, 4 * all.parameters);
  EXPECT_EQ(need(1024).optimizer, all.optimizer);
  options_.optimizer_share.ranks = 4;
  options_.averages = 1;
  EXPECT_EQ(need(1024).optimizer, all.optimizer / 4 + all.parameters);
  options_.averages = 0;
  options_.optimizer_share.whole_tensors = true;
  for (options_.optimizer_share.rank = 0; options_.optimizer_share.rank < 4;
       ++options_.optimizer_share.rank) {
    const std::vector<engine::Elements> share =
        engine::shard_tensors(state.parameters.values, options_.optimizer_share.rank, 4).own();
    EXPECT_EQ(need(1024).optimizer,
              2 * sizeof(float) * static_cast<std::uint64_t>(engine::count_of(share)));
  }
}

// Shards of a device are computed with the memory of one, and added in further buffers.
TEST_F(MemoryPlan, CountsShardsInTurnOnce) {
  const MemoryNeed one = need(512);
  options_.shards = 8;
  options_.in_turn = true;
  options_.sums = 1000;
  const MemoryNeed all = need(512);
  EXPECT_EQ(all.activations, one.activations);
  EXPECT_EQ(all.parameters, one.parameters);
  EXPECT_EQ(all.batches, one.batches);
  EXPECT_EQ(all.gradients, one.gradients + 1000);
  options_.in_turn = false;
  EXPECT_EQ(need(512).activations, 8 * one.activations);
  EXPECT_EQ(need(512).gradients, 8 * one.gradients + 1000);
}

// Of all parameters or of some, on one rank and where tensors are shared out.
TEST_F(MemoryPlan, CountsWhatEachOptimizerHolds) {
  const engine::ModelState state = engine::ModelState::allocate(graph_, engine::DType::kF32);
  const engine::FlatBuffer& values = state.parameters.values;
  const std::vector<std::string> matrices = engine::hidden_matrices(graph_);
  for (const engine::OptimizerSpec* spec : engine::optimizers()) {
    SCOPED_TRACE(spec->name);
    const engine::OptimizerSettings settings = engine::default_settings(*spec);
    options_.optimizer_states = engine::states_of(*spec, settings);
    options_.optimizer_share.whole_tensors = !spec->by_ranges;
    for (const int ranks : {1, 3}) {
      if (ranks > 1 && spec->by_ranges) continue;  // the same of each state, divided
      options_.optimizer_share.ranks = ranks;
      const engine::OptimizerShards shares = engine::shard_tensors(values, 0, ranks);
      const auto optimizer =
          spec->make(*spec, {settings, values, matrices, {}, ranks == 1 ? nullptr : &shares.own()});
      std::uint64_t held = 0;
      for (const engine::Optimizer::State& s : optimizer->state()) held += s.buffer->bytes();
      EXPECT_EQ(need(1024).optimizer, held);
    }
  }
}

TEST_F(MemoryPlan, TheCopyForCheckpointsIsInHostMemoryForStepsOnADevice) {
  const std::uint64_t without = need(64).total();
  options_.saved.parameters = options_.saved.optimizers = 1;
  const MemoryNeed on_host = need(64);
  EXPECT_EQ(on_host.saving, on_host.parameters + on_host.optimizer);
  EXPECT_EQ(on_host.total(), without + on_host.saving);
  options_.saved.in_host = true;
  EXPECT_EQ(need(64).saving_in_host, on_host.saving);
  EXPECT_EQ(need(64).total(), without);
}

// On each rank the largest of its matrices, and not in checkpoints.
TEST_F(MemoryPlan, CountsTheWorkspaceOfAnOptimizerOnce) {
  const engine::OptimizerSpec& muon = *engine::find_optimizer("muon");
  options_.optimizer_states = muon.states;
  options_.saved.parameters = options_.saved.optimizers = 1;
  const MemoryNeed without = need(512);
  options_.optimizer_workspace = muon.workspace_bytes;
  const std::vector<engine::OrderedParameter> all =
      engine::completion_order(graph_, engine::DType::kF32);
  const engine::TensorLayout& second =
      std::ranges::find(all, "layer2.0.weight", [](const engine::OrderedParameter& p) {
        return p.layout.name;
      })->layout.layout;
  const std::uint64_t workspace =
      muon.workspace_bytes({&second, 1}, engine::DType::kF32, engine::Device::Kind::kCpu);
  EXPECT_GT(workspace, 4 * sizeof(float) * static_cast<std::uint64_t>(second.file_shape.count()));
  EXPECT_EQ(need(512).optimizer, without.optimizer + workspace);
  EXPECT_EQ(need(512).saving, without.saving);
  options_.optimizer_share = {.ranks = 64, .whole_tensors = true};
  std::uint64_t ranks = 0;
  for (; options_.optimizer_share.rank < 64; ++options_.optimizer_share.rank)
    if (need(512).optimizer >= workspace) ++ranks;
  EXPECT_EQ(ranks, 1u) << "the owner of the only hidden matrix";
}

// A forward pass beside the step's plan; on a device with a copy of the model.
TEST_F(MemoryPlan, CountsThePassOfAnAverage) {
  const MemoryNeed without = need(512);
  EXPECT_EQ(without.average, 0u);
  options_.statistics = true;
  const MemoryNeed here = need(512);
  EXPECT_GT(here.average, 0u);
  EXPECT_LT(here.average, here.activations);
  EXPECT_EQ(here.total(), without.total() + here.average);
  EXPECT_GT(need(1024).average, here.average);
  plan_.device = engine::Device::Kind::kCuda;
  EXPECT_GT(need(512).average, here.parameters + 512 * 4 * 28 * 28);
}

TEST_F(MemoryPlan, CountsGradientsOfFrozenLayersBetweenTrainedOnes) {
  engine::Graph frozen =
      models::build_model("convnet", {.sample_shape = {28, 28, 1}, .classes = 10});
  frozen.freeze([](const std::string& name) { return name == "layer2.0.weight"; });
  const auto gradients = [&](const engine::Graph& graph) {
    return tools::memory_need(graph, plan_, 8, options_).gradients;
  };
  EXPECT_EQ(gradients(frozen), gradients(graph_));
}

TEST_F(MemoryPlan, WhatFitsIsLetThrough) {
  const std::uint64_t total = need(plan_.max_batch).total();
  EXPECT_EQ(refusal({total, 1}), "");
  EXPECT_NE(refusal({total - 1, 1}), "");
  EXPECT_NE(refusal({total, 2}), "");
  EXPECT_EQ(refusal({0, 1}), "");  // nobody knows
}

TEST_F(MemoryPlan, TheLargestBatchThatFitsIsNamed) {
  for (const std::int64_t batch : {1, 2, 100, 1000, 4000}) {
    const std::string text = refusal({need(batch).total() + need(1).total() / 100, 1});
    EXPECT_EQ(text.find("out of memory: batches of 4096 samples need "), 0u) << text;
    EXPECT_CONTAINS(text, " activations");
    const std::string option = "--batch-size-per-device ";
    const std::size_t at = text.find(option);
    ASSERT_NE(at, std::string::npos) << text;
    const std::int64_t named = std::stoll(text.substr(at + option.size()));
    EXPECT_NEAR(static_cast<double>(named), static_cast<double>(batch),
                2 + 0.02 * static_cast<double>(batch))
        << text;
  }
}

// A limit makes backward compute activations again; one that is too small is a wrong option.
TEST_F(MemoryPlan, ALimitOfTheUserHoldsOrIsRejected) {
  const auto rejection = [&] {
    return test_support::error_or<io::ConfigError>(
        [&] { tools::check_memory(graph_, plan_, options_, {}); }, "");
  };
  const std::uint64_t whole = need(plan_.max_batch).total();
  options_.limit_is_hard = true;
  options_.limit = whole;
  EXPECT_EQ(need(plan_.max_batch).total(), whole);
  options_.limit = whole / 20 * 19;
  EXPECT_LE(need(plan_.max_batch).total(), options_.limit);
  EXPECT_EQ(rejection(), "");
  options_.limit = 1;
  const std::uint64_t least = need(plan_.max_batch).total();
  EXPECT_LT(least, whole / 20 * 19);
  options_.limit = least - 1;
  const std::string text = rejection();
  EXPECT_CONTAINS(text, "is too small: batches of 4096 samples need at least " +
                            std::to_string((least >> 20) + 1) + " MiB (");
  EXPECT_CONTAINS(text, "; at most --batch-size-per-device 4095 would fit");
  options_.limit = 1 << 20;
  EXPECT_LACKS(rejection(), "--batch-size-per-device");
  EXPECT_VALUES(rejection(), "1 MiB 4096 MiB one sample KiB");
}

TEST_F(MemoryPlan, ALimitIsAtMostWhatIsFree) {
  constexpr std::uint64_t kGib = std::uint64_t{1} << 30;
  const auto limit = [](const tools::MemoryRequest& request, const tools::MemoryBudget& budget,
                        std::uint64_t smallest_plan = 0) {
    return tools::rank_limit(request, budget, [&](std::uint64_t) { return smallest_plan; });
  };
  const tools::MemoryBudget shared{.bytes = 8 * kGib, .ranks = 2};
  EXPECT_EQ(limit({.bytes = 3 * kGib}, shared).bytes, 3 * kGib);
  EXPECT_EQ(limit({.bytes = 5 * kGib}, shared).bytes, 4 * kGib);
  EXPECT_EQ(limit({.bytes = 5 * kGib}, shared).requested, 5 * kGib);
  EXPECT_EQ(limit({.bytes = 5 * kGib}, {}).bytes, 5 * kGib) << "not known what is free";
  EXPECT_EQ(limit({.bytes = kGib}, {.bytes = 0, .device = 0}).bytes, 1u) << "nothing is free";
  EXPECT_EQ(limit({}, shared).bytes, 0u);
  const std::uint64_t most = shared.nine_tenths_of_rank();
  EXPECT_EQ(limit({.automatic = true}, shared, most).bytes, most);
  EXPECT_EQ(limit({.automatic = true}, shared, most + 1).bytes, 4 * kGib);
  EXPECT_EQ(limit({.automatic = true}, shared, most + 1).requested, most);
  EXPECT_EQ(limit({.automatic = true}, {}).bytes, 0u);
}

TEST_F(MemoryPlan, TheAdviceIncludesMemoryAutoIfItWouldHelp) {
  const std::uint64_t whole = need(plan_.max_batch).total();
  EXPECT_VALUES(refusal({whole - 1, 1}), "--batch-size-per-device --memory auto");
  options_.limit = 1;
  const std::uint64_t least = need(plan_.max_batch).total();
  options_.limit = 0;
  EXPECT_EQ(refusal({least - 1, 1}).find("--memory"), std::string::npos);
  options_.limit = least - 1;
  EXPECT_EQ(refusal({least - 1, 1}).find("--memory"), std::string::npos);
}

TEST_F(MemoryPlan, TheLargestBatchOfALimitFits) {
  options_.limit = need(plan_.max_batch).total() * 2;
  const std::int64_t most = tools::largest_batch(graph_, plan_, options_);
  EXPECT_GT(most, 2 * plan_.max_batch);
  EXPECT_LE(need(most).total(), options_.limit);
  EXPECT_GT(need(most + 1).total(), options_.limit);
  options_.limit = 1;
  EXPECT_EQ(tools::largest_batch(graph_, plan_, options_), 0);
}

TEST_F(MemoryPlan, RanksOfAHostShareItAndAModelMayBeTooLarge) {
  const std::string shared = refusal({2 * need(100).total(), 2});
  EXPECT_VALUES(shared, "2 ranks");
  const std::string none = refusal({need(1).total() / 2, 1});
  EXPECT_VALUES(none, "one sample");
}

TEST_F(MemoryPlan, OnADeviceWeightsMayHaveShortCopiesAndAnEvaluationAModelOfItsOwn) {
  const MemoryNeed plain = need(64);
  EXPECT_EQ(plain.evaluation, 0u);
  options_.short_weights = 2;
  EXPECT_EQ(need(64).parameters, plain.parameters / 2 * 3);
  options_.evaluation = 64;
  const MemoryNeed both = need(64);
  EXPECT_GT(both.evaluation, both.parameters);
  EXPECT_LT(both.evaluation, both.total() - both.evaluation);
  EXPECT_EQ(need(4096).evaluation, both.evaluation) << "its batches are its own";
}

TEST_F(MemoryPlan, ADeviceIsNamedAndTheBatchIsThatOfAMicroBatch) {
  options_.micro_batches = 4;
  const std::string text =
      refusal({.bytes = need(100).total(), .device = 1, .total = std::uint64_t{3} << 30});
  EXPECT_EQ(text.find("out of memory on cuda:1: micro-batches of 4096 samples need "), 0u) << text;
  EXPECT_CONTAINS(text, " of 3 GiB are free; at most --batch-size-per-device 100 ");
  const std::string none = refusal({.bytes = need(1).total() / 2, .device = 0});
  EXPECT_VALUES(none, "cuda:0: one sample");
}

TEST_F(MemoryPlan, MemoryThatWasRefusedLeavesAnAdvice) {
  const auto advice = [&](std::uint64_t bytes) {
    return tools::batch_advice(graph_, plan_, options_, bytes);
  };
  EXPECT_EQ(advice(need(100).total()).find("at most --batch-size-per-device "), 0u)
      << advice(need(100).total());
  EXPECT_VALUES(advice(2 * need(4096).total()), "plan --batch-size-per-device 4096");
  EXPECT_VALUES(advice(need(1).total() / 2), "one sample");
  EXPECT_LACKS(advice(need(1).total() / 2), "--batch-size-per-device");
}

// Private writable memory of this process that has an address, used or not.
std::uint64_t mapped_bytes() {
  const std::string status = io::read_run_file("/proc/self/status", 1 << 20);
  return std::strtoull(status.c_str() + status.find("VmData:") + 7, nullptr, 10) << 10;
}

struct Policy {
  const char* name;
  tools::AveragingOptions options;
};

std::vector<Policy> policies() {
  using Options = tools::AveragingOptions;
  using Method = Options::Method;
  using Compression = Options::Compression;
  std::vector<Policy> policies{{"grad", {}}, {"params", {.method = Method::kParameters}}};
  for (const Compression codes : {Compression::kBf16, Compression::kTopK, Compression::kPowerSgd,
                                  Compression::kInt8, Compression::kSparse})
    policies.push_back({"compressed grad", {.compression = codes}});
  policies.push_back({"sparse grad with momentum",
                      {.compression = Compression::kSparse, .sparse = {.momentum = 0.9}}});
  policies.push_back(
      {"int4 params", {.method = Method::kParameters, .compression = Compression::kInt4}});
  policies.push_back({"post-local", {.method = Method::kPostLocal, .warmup = 10}});
  policies.push_back({"slowmo", {.method = Method::kSlowMo}});
  policies.push_back({"diloco", {.method = Method::kDiloco}});
  policies.push_back(
      {"sparse diloco", {.method = Method::kDiloco, .compression = Compression::kSparse}});
  policies.push_back({"gossip", {.method = Method::kGossip}});
  policies.push_back({"stale params", {.method = Method::kParameters, .stale = {.max_behind = 1}}});
  policies.push_back({"stale diloco", {.method = Method::kDiloco, .stale = {.max_behind = 1}}});
  policies.push_back({"streaming", {.method = Method::kStreaming, .every = 8}});
  policies.push_back(
      {"int8 streaming",
       {.method = Method::kStreaming, .compression = Compression::kInt8, .every = 8}});
  return policies;
}

std::size_t factor_bytes(const tools::AveragingOptions& options, const engine::Graph& graph,
                         int copies) {
  std::vector<engine::NamedLayout> trained;
  for (const auto& parameter : engine::completion_order(graph, engine::DType::kF32))
    trained.push_back(parameter.layout);
  return tools::factor_bytes_on_device(options, 2, engine::DType::kF32, trained, copies);
}

// Threads, work memory and the compressed methods' factors take the rest.
TEST(AveragingMemory, IsWhatThePoliciesKeep) {
  const engine::Graph graph =
      models::build_model("resnet18", {.sample_shape = {32, 32, 3}, .classes = 10});
  engine::ModelState state = engine::ModelState::allocate(graph, engine::DType::kF32);
  const engine::OptimizerSpec& sgd = *engine::find_optimizer("sgd");
  const auto optimizer = sgd.make(sgd, {.settings = engine::default_settings(sgd),
                                        .values = state.parameters.values,
                                        .hidden_matrices = engine::hidden_matrices(graph)});
  const auto groups = backends::make_inproc_groups(2, test_support::deadline_ms(20'000));
  const auto communicator = groups[0]->make_communicator();
  std::vector<std::unique_ptr<backends::Communicator>> pairs(2);
  pairs[1] = groups[0]->make_communicator();
  engine::ThreadPool pool(1);
  engine::KernelContext context{.device = {}, .threads = &pool, .scratch = {}};
  const auto gradients = static_cast<double>(state.parameters.gradients.bytes());
  for (const Policy& policy : policies()) {
    const std::uint64_t before = mapped_bytes();
    tools::AveragingParts parts{.communicator = *communicator,
                                .island = nullptr,
                                .model = state,
                                .optimizer = *optimizer,
                                .context = context,
                                .seed = 1,
                                .pairs = {.in_host_memory = pairs}};
    const auto made = tools::make_averaging(policy.options, *groups[0], parts);
    const double kept = static_cast<double>(mapped_bytes() - before) / gradients,
                 planned = static_cast<double>(
                               tools::averaging_bytes(policy.options, 2, engine::DType::kF32)) /
                           sizeof(float);
    EXPECT_NEAR(kept, planned, 0.45) << policy.name;
    std::size_t on_device = 0;
    parts.on_device = true;
    const auto of_device = tools::make_averaging(policy.options, *groups[0], parts);
    for (const engine::HomeBuffer& buffer : of_device->memory_at_home().buffers)
      if (buffer.buffer->slots().size() == state.parameters.gradients.slots().size())
        on_device += buffer.buffer->bytes();
      else  // factors, whose size is not in proportion
        EXPECT_EQ(buffer.buffer->bytes(),
                  factor_bytes(policy.options, graph, 1) - factor_bytes(policy.options, graph, 0))
            << policy.name;
    EXPECT_EQ(static_cast<double>(on_device) / gradients,
              static_cast<double>(
                  tools::averaging_bytes_on_device(policy.options, 2, engine::DType::kF32)) /
                  sizeof(float))
        << policy.name;
  }
  // One rank has the anchor and the momentum of its outer steps, and none for a plain mean.
  EXPECT_EQ(tools::averaging_bytes({.method = tools::AveragingOptions::Method::kDiloco}, 1,
                                   engine::DType::kF32),
            2 * sizeof(float));
  EXPECT_EQ(tools::averaging_bytes({.method = tools::AveragingOptions::Method::kParameters}, 1,
                                   engine::DType::kF32),
            0u);
}

}  // namespace
