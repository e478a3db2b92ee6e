// Averages fragments of the parameters one after the other, each with an outer step, while the
// replicas train.
#include <algorithm>
#include <utility>

#include "engine/averaging/math/state_math.h"
#include "engine/averaging/policies/averaging_policies.h"
#include "engine/averaging/policies/fragments.h"
#include "engine/averaging/policies/mean_report.h"
#include "engine/averaging/policies/outer_step.h"
#include "engine/averaging/policies/sample_count.h"
#include "engine/averaging/sums/replica_mean.h"
#include "io/base/threads/ordered_queue.h"
#include "io/base/time/trace.h"

namespace engine {
namespace {

// A fragment and its clock.
struct FragmentClock {
  Elements part;
  SampleCount samples = {};      // since its last exchange was started
  std::int64_t unmerged = 0;     // of this rank before that, in an exchange that is not merged yet
  bool apart = false;            // the replicas' values may differ
  std::int64_t outer_steps = 0;  // of this fragment
  std::int64_t sent_at = 0;      // the step after which its exchange was started; 0: none in flight
  std::size_t ticket = 0;        // exchanges up to that one; 0: it ended before a checkpoint
  bool received = true;          // the result is where the state is
};

class StreamingAveraging final : public AveragingPolicy {
 public:
  StreamingAveraging(backends::Communicator& communicator, ParameterBuffer& parameters,
                     KernelContext& context, const StreamingOptions& options)
      : communicator_(communicator),
        parameters_(parameters),
        context_(context),
        host_(context),
        options_(options),
        world_size_(communicator.world_size()),
        mean_(communicator, context, parameters, {}, options.lossy),
        outer_(parameters, context, options.outer),
        sums_(FlatBuffer::like(parameters.gradients)),
        queue_([this](std::size_t number) { exchange(number); },
               options.overlap > 0 ? "averaging" : nullptr) {
    require(options.every >= 1 && options.overlap >= 0 && options.overlap < options.every,
            "streaming overlaps fewer steps than a period has");
    for (const Elements& part :
         fragments_of(parameters.gradients, options.fragments, options.every))
      fragments_.push_back({.part = part});
    exchanges_.resize(fragments_.size());
  }
  ~StreamingAveraging() override {
    if (queue_.is_busy()) communicator_.abort("the training run ended");
  }
  StreamingAveraging(const StreamingAveraging&) = delete;
  StreamingAveraging& operator=(const StreamingAveraging&) = delete;

  std::string_view name() const override { return options_.name; }
  double loss_scale(const StepWeights& weights) const override {
    return factor_of_mean(weights.local);
  }
  GradientExchange* begin_step(StateHome& home) override {
    const bool starts =
        mean_.needs_start() && !std::ranges::all_of(fragments_, &FragmentClock::apart);
    if (!starts && outer_.started()) return nullptr;
    const StateUse use(home, true);
    if (starts)
      for (const FragmentClock& fragment : fragments_)
        if (!fragment.apart) mean_.start(fragment.part, own_values(fragment), use.math());
    outer_.start(use.math());
    return nullptr;
  }
  // Merges what is due first, so that a fragment is never sent while its last exchange is in
  // flight.
  std::int64_t end_step(const StepCounts& counts, double /*lr*/, StateHome& home) override {
    ++updates_;
    for (FragmentClock& fragment : fragments_) {
      fragment.samples.add(counts);
      fragment.apart = true;
    }
    for (FragmentClock& fragment : fragments_)
      if (fragment.sent_at > 0 &&
          (updates_ >= fragment.sent_at + options_.overlap || is_due(fragment)))
        merge(fragment, home);
    for (FragmentClock& fragment : fragments_) {
      if (!is_due(fragment)) continue;
      send(fragment, home);
      if (options_.overlap == 0) merge(fragment, home);
    }
    return 0;
  }
  // Exchanges in flight end here, because the communicator is needed; their results are merged when
  // they are due, as without a save. If one or the average fails, the replicas count as different.
  void synchronize(StateHome& home) override {
    queue_.wait_for_all();
    if (is_in_sync()) return;
    SampleCount samples;
    for (const FragmentClock& fragment : fragments_) {
      samples.local += fragment.samples.local;
      samples.global += fragment.samples.global;
    }
    const StateUse use(home, true);
    if (use.math() != nullptr) receive_all(*use.math());
    mean_.average(samples.weight(world_size_), averagings_, {}, {.home = use.math()});
    ++averagings_;
    for (FragmentClock& fragment : fragments_) {
      fragment.samples = {};
      fragment.unmerged = 0;
      fragment.apart = false;
    }
  }
  HomeMemory memory_at_home() override {
    std::vector<HomeBuffer> buffers = outer_.buffers_at_home();
    buffers.push_back({.buffer = &sums_, .exchanged = true});
    for (const HomeBuffer& buffer : mean_.buffers_at_home()) buffers.push_back(buffer);
    return {.buffers = std::move(buffers),
            .wait_idle = [this](StateMath& home) { receive_all(home); },
            .cancel = [this] { cancel_exchanges(); }};
  }
  Coupling coupling() const override { return {.lone = LoneState::kOwn}; }
  RankDifferences differences() const override { return {.optimizer_states = true}; }
  bool is_in_sync() const override {
    return std::ranges::none_of(fragments_, &FragmentClock::apart);
  }
  std::int64_t samples_since_sync() const override {
    std::int64_t most = 0;
    for (const FragmentClock& fragment : fragments_)
      if (fragment.apart)
        most = std::max({most, std::int64_t{1}, fragment.samples.local + fragment.unmerged});
    return most;
  }

  // If the group has failed, a result that did not arrive is lost: the fragment is averaged
  // again at its next time.
  PolicyCounters counters() const override {
    const std::size_t ended = queue_.wait_idle();
    PolicyCounters counters{{"updates", updates_},
                            {"averagings", averagings_},
                            {"bytes_sent", mean_.bytes_sent() + bytes_sent_},
                            {"fragments", static_cast<std::int64_t>(fragments_.size())}};
    outer_.add_counters(counters);
    for (std::size_t f = 0; f < fragments_.size(); ++f) {
      counters.emplace_back(counter_of(f, "outer_steps"), fragments_[f].outer_steps);
      counters.emplace_back(counter_of(f, "sent_at"),
                            fragments_[f].ticket <= ended ? fragments_[f].sent_at : 0);
    }
    return counters;
  }
  // With another number of fragments, results in flight are lost, and each fragment continues with
  // the mean number of outer steps.
  void restore_counters(const PolicyCounters& counters) override {
    updates_ = find_counter(counters, "updates", 0);
    averagings_ = find_counter(counters, "averagings", 0);
    mean_.set_bytes_sent(find_counter(counters, "bytes_sent", 0));
    bytes_sent_ = 0;
    const auto own = static_cast<std::int64_t>(fragments_.size());
    outer_.restore_counters(counters, own);
    const bool same = find_counter(counters, "fragments", 1) == own;
    for (std::size_t f = 0; f < fragments_.size(); ++f) {
      FragmentClock& fragment = fragments_[f];
      fragment = {.part = fragment.part, .outer_steps = outer_.steps() / own};
      if (!same) continue;
      fragment.outer_steps =
          find_counter(counters, counter_of(f, "outer_steps"), fragment.outer_steps);
      fragment.sent_at = find_counter(counters, counter_of(f, "sent_at"), 0);
    }
  }
  std::vector<PolicyState> state() override {
    std::vector<PolicyState> state = outer_.state();
    state.push_back({"fragment_means", &sums_, false});
    for (PolicyState& of_mean : mean_.state()) state.push_back(std::move(of_mean));
    return state;
  }
  AveragingReport take_report() override {
    return report_of(mean_, averagings_, coverage(), bytes_sent_);
  }

 private:
  static std::string counter_of(std::size_t fragment, const char* what) {
    return "fragment" + std::to_string(fragment) + "." + what;
  }
  // The clock of the first fragment is that of --sync-every.
  bool is_due(const FragmentClock& fragment) const {
    const auto f = static_cast<std::int64_t>(&fragment - fragments_.data());
    const std::int64_t ahead =
        fragment_offset(f, static_cast<std::int64_t>(fragments_.size()), options_.every);
    return (updates_ + ahead) % options_.every == 0;
  }
  // A fragment has one exchange at a time, and exchanges end in order, so the place of an earlier
  // one is free.
  void send(FragmentClock& fragment, StateHome& home) {
    const StateUse use(home, true);
    mean_.contribute(fragment.samples.weight(world_size_), fragment.part, sums_, use.math());
    exchanges_[started_ % exchanges_.size()] = {fragment.part, averagings_, use.math()};
    queue_.post(++started_);
    fragment.ticket = started_;
    fragment.received = use.math() == nullptr;
    fragment.sent_at = updates_;
    fragment.unmerged += fragment.samples.local;
    fragment.samples = {};
    bytes_sent_ += mean_.bytes_of(averagings_, fragment.part);
    ++averagings_;
  }
  // On the queue's thread, while the pool's threads are busy with steps.
  void exchange(std::size_t number) {
    const base::TraceSpan span("fragment");
    const auto& [part, round, home] = exchanges_[number % exchanges_.size()];
    mean_.sum_range(round, part, sums_, options_.overlap > 0 ? nullptr : context_.threads, home);
  }
  void merge(FragmentClock& fragment, StateHome& home) {
    queue_.wait(fragment.ticket);
    const StateUse use(home, true);
    StateMath& math = use.math() != nullptr ? *use.math() : host_;
    receive(fragment, math);
    outer_.apply_part(fragment.part, sums_,
                      outer_rate(options_.outer, fragment.outer_steps, options_.every), use.math());
    const TensorView result = outer_.anchor(fragment.part);
    const TensorView own = own_values(fragment);
    if (options_.mixing < 1)
      math.combine(options_.mixing, result, 1 - options_.mixing, own, own);
    else
      math.copy(result, own);
    fragment.apart = options_.mixing < 1;
    fragment.unmerged = 0;
    mean_.start(fragment.part, result, use.math());
    ++fragment.outer_steps;
    fragment.sent_at = 0;
  }
  void receive(FragmentClock& fragment, StateMath& home) {
    if (!std::exchange(fragment.received, true)) mean_.receive(fragment.part, sums_, &home);
  }
  // Waits for all exchanges. Those that have failed are reported when they are merged.
  void receive_all(StateMath& home) {
    const std::size_t ended = queue_.wait_idle();
    for (FragmentClock& fragment : fragments_)
      if (fragment.sent_at > 0 && fragment.ticket <= ended) receive(fragment, home);
  }
  void cancel_exchanges() const {
    if (queue_.is_busy()) communicator_.abort("this rank has failed");
    queue_.wait_idle();
  }
  TensorView own_values(const FragmentClock& fragment) const {
    return parameters_.values.part(fragment.part.first, fragment.part.count);
  }
  std::string coverage() const {
    return "averaged " + std::to_string(parameters_.gradients.slots().size()) + "/" +
           std::to_string(parameters_.values.slots().size()) + " parameters" + mean_.note() +
           " in " + std::to_string(fragments_.size()) +
           (fragments_.size() == 1 ? " fragment, " : " fragments, ") + std::to_string(averagings_) +
           " averagings of one or all in " + std::to_string(updates_) + " steps, with " +
           std::to_string(outer_.steps()) + " outer steps";
  }

  struct Exchange {
    Elements part;
    std::int64_t round = 0;
    StateMath* home = nullptr;
  };

  backends::Communicator& communicator_;
  ParameterBuffer& parameters_;
  KernelContext& context_;
  HostMath host_;
  const StreamingOptions options_;
  const int world_size_;
  std::vector<FragmentClock> fragments_;
  ReplicaMean mean_;
  OuterStep outer_;
  FlatBuffer sums_;  // the fragments that are sent, then their means
  std::int64_t updates_ = 0, averagings_ = 0, bytes_sent_ = 0;
  std::size_t started_ = 0;          // exchanges of this object
  std::vector<Exchange> exchanges_;  // those in flight, at their numbers modulo its size
  base::OrderedQueue queue_;         // declared last: its thread uses the members above
};

}  // namespace

std::unique_ptr<AveragingPolicy> make_streaming_averaging(backends::Communicator& communicator,
                                                          ParameterBuffer& parameters,
                                                          KernelContext& context,
                                                          const StreamingOptions& options) {
  return std::make_unique<StreamingAveraging>(communicator, parameters, context, options);
}

}  // namespace engine
