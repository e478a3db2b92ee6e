// Averages parameters of random pairs of ranks every K updates, and of all ranks in synchronize().
#include <algorithm>
#include <array>
#include <optional>

#include "engine/averaging/policies/averaging_policies.h"
#include "engine/averaging/policies/gossip_pairs.h"
#include "engine/averaging/policies/mean_report.h"
#include "engine/averaging/policies/outer_rate.h"
#include "engine/averaging/policies/outer_step.h"
#include "engine/averaging/policies/sample_count.h"
#include "engine/averaging/sums/replica_mean.h"

namespace engine {
namespace {

class GossipAveraging final : public AveragingPolicy {
 public:
  GossipAveraging(backends::Communicator& communicator, PairCommunicators pairs,
                  ParameterBuffer& parameters, KernelContext& context, const GossipOptions& options)
      : communicator_(communicator),
        pair_communicators_(pairs),
        parameters_(parameters),
        context_(context),
        host_(context),
        options_(options),
        mean_(communicator, context, parameters, {}),
        start_(FlatBuffer::like(parameters.gradients)),
        pairs_(options.seed, communicator.world_size()) {
    const auto ranks = static_cast<std::size_t>(communicator.world_size());
    require(pairs.in_host_memory.size() == ranks &&
                (pairs.on_devices.empty() || pairs.on_devices.size() == ranks),
            "a rank needs a communicator with each other rank");
    if (options.outer) outer_.emplace(parameters, context, *options.outer);
  }

  std::string_view name() const override { return options_.name; }
  double loss_scale(const StepWeights& weights) const override {
    return factor_of_mean(weights.local);
  }
  GradientExchange* begin_step(StateHome& home) override {
    if (apart_) return nullptr;
    const StateUse use(home, true);
    keep_start(use.math());
    if (outer_) outer_->start(use.math());
    return nullptr;
  }
  std::int64_t end_step(const StepCounts& counts, double lr, StateHome& home) override {
    ++updates_;
    apart_ = true;
    samples_.add(counts);
    samples_since_sync_ += counts.local;
    if (!options_.schedule.due(updates_)) return 0;
    const StateUse use(home, true);
    average_pair(use.math());
    // A rank that pauses also takes the outer step: the mean of the anchors of all ranks, as that
    // of their parameters, then moves as with one mean over all.
    if (outer_) outer_->apply(lr, period_at(options_.schedule, updates_), use.math());
    keep_start(use.math());
    samples_ = {};
    return 0;
  }
  HomeMemory memory_at_home() override {
    std::vector<HomeBuffer> buffers{{.buffer = &start_, .is_state = false}};
    if (outer_)
      for (const HomeBuffer& buffer : outer_->buffers_at_home()) buffers.push_back(buffer);
    return {.buffers = std::move(buffers)};
  }
  Coupling coupling() const override {
    return {.steps_alone = true, .stays_apart = true, .lone = LoneState::kOwn};
  }
  // Anchor and momentum also become their means, so that a checkpoint has one of each.
  void synchronize(StateHome& home) override {
    if (!apart_) return;
    const StateUse use(home, true);
    std::vector<FlatBuffer*> of_outer_step;
    if (outer_)
      for (const PolicyState& state : outer_->state()) of_outer_step.push_back(state.buffer);
    mean_.average(samples_.weight(communicator_.world_size()), averagings_, of_outer_step,
                  {.start = &start_, .home = use.math()});
    apart_ = false;
    samples_ = {};
    samples_since_sync_ = 0;
    ++averagings_;
  }
  RankDifferences differences() const override { return {.optimizer_states = true}; }
  bool is_in_sync() const override { return !apart_; }
  std::int64_t samples_since_sync() const override {
    return apart_ ? std::max<std::int64_t>(1, samples_since_sync_) : 0;
  }

  PolicyCounters counters() const override {
    PolicyCounters counters{{"updates", updates_},
                            {"averagings", averagings_},
                            {"pair_averagings", pair_averagings_},
                            {"bytes_sent", mean_.bytes_sent()}};
    if (outer_) outer_->add_counters(counters);
    return counters;
  }
  void restore_counters(const PolicyCounters& counters) override {
    updates_ = find_counter(counters, "updates", 0);
    averagings_ = find_counter(counters, "averagings", 0);
    pair_averagings_ = find_counter(counters, "pair_averagings", 0);
    mean_.set_bytes_sent(find_counter(counters, "bytes_sent", 0));
    if (outer_) outer_->restore_counters(counters);
  }
  std::vector<PolicyState> state() override {
    return outer_ ? outer_->state() : std::vector<PolicyState>{};
  }
  // The spread is measured where all ranks average.
  AveragingReport take_report() override { return report_of(mean_, averagings_, coverage()); }

 private:
  void keep_start(StateMath* home) {
    const TensorView values = parameters_.values.part(0, mean_.all().count);
    (home != nullptr ? *home : host_).copy(values, start_.part(0, mean_.all().count));
  }
  void average_pair(StateMath* home) {
    const int self = communicator_.rank();
    const std::span<const int> partners = pairs_.draw(options_.schedule.count(0, updates_));
    const int partner = partners[static_cast<std::size_t>(self)];
    if (partner != self) {
      const auto at = static_cast<std::size_t>(partner);
      backends::Communicator& pair = *pair_communicators_.in_host_memory[at];
      std::array<std::int64_t, 2> samples{};
      pair.all_gather(&samples_.local, sizeof samples_.local, samples.data());
      const SampleCount of_pair{samples_.local, samples[0] + samples[1]};
      ReplicaMean::SomeRanks both;
      if (!pair_communicators_.on_devices.empty())
        both.devices = pair_communicators_.on_devices[at].get();
      ReplicaMean mean(pair, context_, parameters_, {}, std::nullopt, both);
      mean.average(of_pair.weight(2), averagings_, {}, {.start = &start_, .home = home});
      mean_.set_bytes_sent(mean_.bytes_sent() + mean.bytes_sent());
    }
    ++averagings_;
    ++pair_averagings_;
  }

  std::string coverage() const {
    std::string text = "averaged " + std::to_string(parameters_.gradients.slots().size()) + "/" +
                       std::to_string(parameters_.values.slots().size()) + " parameters " +
                       std::to_string(pair_averagings_) + " times in pairs and " +
                       std::to_string(averagings_ - pair_averagings_) +
                       " times over all ranks in " + std::to_string(updates_) + " steps";
    return outer_ ? text + ", with " + std::to_string(outer_->steps()) + " outer steps" : text;
  }

  backends::Communicator& communicator_;
  const PairCommunicators pair_communicators_;
  ParameterBuffer& parameters_;
  KernelContext& context_;
  HostMath host_;
  const GossipOptions options_;
  ReplicaMean mean_;  // over all ranks
  FlatBuffer start_;  // this rank's parameters after its last averaging
  GossipPairs pairs_;
  std::optional<OuterStep> outer_;
  std::int64_t updates_ = 0, averagings_ = 0, pair_averagings_ = 0;
  bool apart_ = false;                   // there were updates since all ranks averaged
  SampleCount samples_;                  // since the last averaging
  std::int64_t samples_since_sync_ = 0;  // since all ranks averaged, on this rank
};

}  // namespace

std::unique_ptr<AveragingPolicy> make_gossip_averaging(backends::Communicator& communicator,
                                                       PairCommunicators pairs,
                                                       ParameterBuffer& parameters,
                                                       KernelContext& context,
                                                       const GossipOptions& options) {
  return std::make_unique<GossipAveraging>(communicator, pairs, parameters, context, options);
}

}  // namespace engine
