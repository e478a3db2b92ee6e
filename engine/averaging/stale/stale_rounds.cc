// Implements the exchange of signs and the rule for closing a round.
#include "engine/averaging/stale/stale_rounds.h"

#include <algorithm>
#include <chrono>
#include <type_traits>

#include "engine/core/error.h"
#include "io/base/time/deadline.h"
#include "io/base/time/trace.h"

namespace engine {
namespace {

// The time between two exchanges of signs, and the shortest patience.
constexpr std::chrono::milliseconds kPoll{2};
constexpr double kPollSeconds = 0.002;
constexpr double kLongestPatience = 60;  // seconds; only then has a wait the group's deadline

// Unlocks for its lifetime.
class Unlocked {
 public:
  explicit Unlocked(std::unique_lock<std::mutex>& lock) : lock_(lock) { lock_.unlock(); }
  ~Unlocked() { lock_.lock(); }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  std::unique_lock<std::mutex>& lock_;
};

}  // namespace

StaleRounds::StaleRounds(backends::Communicator& communicator, const StaleOptions& options,
                         StaleWork& work)
    : communicator_(communicator),
      options_(options),
      work_(work),
      signs_(static_cast<std::size_t>(communicator.world_size())) {
  static_assert(std::is_trivially_copyable_v<Sign> && sizeof(Sign) == 10 * sizeof(std::int64_t));
  require(options.max_behind >= 1 && options.patience >= 0,
          "a late rank is at least one round behind");
  totals_.skipped.resize(signs_.size());
  thread_ = std::thread([this, tracer = base::Tracer::of_this_thread()] {
    const base::TraceThread traced(tracer, "averaging");
    serve();
  });
}

StaleRounds::~StaleRounds() {
  cancel();
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StaleRounds::cancel() {
  std::unique_lock lock(mutex_);
  if (!running_) return;
  communicator_.abort("the training run ended");
  ++events_;
  changed_.notify_all();
  changed_.wait(lock, [this] { return !running_; });
}

void StaleRounds::rethrow() const {
  if (failure_) std::rethrow_exception(failure_);
}

void StaleRounds::start_period() {
  own_.behind = 0;
  period_start_ = base::steady_seconds();
  ++events_;
  changed_.notify_all();
}

bool StaleRounds::is_running() {
  const std::lock_guard lock(mutex_);
  rethrow();
  return running_;
}

void StaleRounds::start() {
  const std::lock_guard lock(mutex_);
  rethrow();
  require(!running_, "rounds that run are started");
  own_.ready = 0;
  running_ = true;
  start_period();
}

StaleRounds::Standing StaleRounds::standing() {
  const std::lock_guard lock(mutex_);
  rethrow();
  return {own_.behind, closed_at_, std::max(closed_at_, called_to_)};
}

void StaleRounds::add_skipped(std::int64_t steps) {
  const std::lock_guard lock(mutex_);
  own_.skipped += steps;
}

void StaleRounds::call_to(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  calling_to_ = step;
  calling_since_ = base::steady_seconds();
}

StaleRounds::Outcome StaleRounds::join(const Arrival& arrival) {
  std::unique_lock lock(mutex_);
  rethrow();
  // It was closed after the rank's own thread had looked.
  if (arrival.kind == StaleRound::Kind::kScheduled && closed_at_ >= arrival.step)
    return Outcome::kMissed;
  own_.ready = 1;
  own_.kind = arrival.kind;
  own_.waits_for_all = arrival.waits_for_all || arrival.kind != StaleRound::Kind::kScheduled;
  own_.step = arrival.step;
  own_.samples = arrival.samples;
  ready_since_ = base::steady_seconds();
  if (own_.waits_for_all != 0) {
    calling_to_ = arrival.step;
    calling_since_ = ready_since_;
  }
  ++events_;
  changed_.notify_all();
  changed_.wait(lock, [this] { return failure_ || own_.ready == 0; });
  rethrow();
  return outcome_;
}

bool StaleRounds::has_waited(double since, double now) const {
  const double patience =
      std::clamp(options_.patience * (since - period_start_), kPollSeconds, kLongestPatience);
  return now - since >= patience;
}

void StaleRounds::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || running_; });
    if (stop_) return;
    try {
      exchange(lock);
    } catch (...) {
      failure_ = std::current_exception();
      running_ = false;
      changed_.notify_all();
      return;
    }
  }
}

// A rank without which no round may close exchanges no signs, once the patience of another one has
// ended, until it has ended its step: the others then wait in a collective, which has a deadline.
void StaleRounds::exchange(std::unique_lock<std::mutex>& lock) {
  const std::uint64_t seen = events_;
  const double now = base::steady_seconds();  // for both: an impatient rank has sent the step
  if (calling_to_ > own_.called_to && has_waited(calling_since_, now)) own_.called_to = calling_to_;
  Sign sign = own_;
  sign.kept = work_.offer();
  sign.impatient = own_.ready != 0 && has_waited(ready_since_, now) ? 1 : 0;
  {
    const Unlocked unlocked(lock);
    communicator_.all_gather(&sign, sizeof sign, signs_.data());
  }
  for (const Sign& of_rank : signs_) called_to_ = std::max(called_to_, of_rank.called_to);
  const Decision decision = decide();
  if (decision.closes) return close(decision, sign, lock);
  const auto has_changed = [&] { return events_ != seen || stop_; };
  const bool is_needed =
      decision.impatient && (decision.all_needed || sign.behind >= options_.max_behind);
  if (sign.ready == 0 && is_needed)
    changed_.wait(lock, has_changed);
  else
    changed_.wait_for(lock, kPoll, has_changed);
}

// All ranks decide alike, because they have the same signs.
StaleRounds::Decision StaleRounds::decide() const {
  Decision decision;
  bool one_needed = false;
  for (const Sign& sign : signs_) {
    if (sign.ready == 0) {
      one_needed = one_needed || sign.behind >= options_.max_behind;
      continue;
    }
    require(decision.ready == 0 || (decision.kind == sign.kind && decision.step == sign.step),
            "ranks wait for different averagings");
    ++decision.ready;
    decision.kind = sign.kind;
    decision.step = sign.step;
    decision.all_needed = decision.all_needed || sign.waits_for_all != 0;
    decision.impatient = decision.impatient || sign.impatient != 0;
  }
  decision.closes = decision.ready == static_cast<int>(signs_.size()) ||
                    (decision.impatient && !decision.all_needed && !one_needed);
  return decision;
}

void StaleRounds::close(const Decision& decision, const Sign& sign,
                        std::unique_lock<std::mutex>& lock) {
  std::int64_t samples = 0;
  for (const Sign& of_rank : signs_)
    samples += of_rank.kept + (of_rank.ready != 0 ? of_rank.samples : 0);
  const auto weight = [samples](std::int64_t of_rank) {
    return samples == 0 ? 0.0 : static_cast<double>(of_rank) / static_cast<double>(samples);
  };
  StaleRound round{.kind = decision.kind,
                   .step = decision.step,
                   .full = decision.ready == static_cast<int>(signs_.size()),
                   .on_time = sign.ready != 0,
                   .kept_weight = weight(sign.kept)};
  // Without samples, ranks have equal weights.
  if (round.on_time) round.own_weight = samples == 0 ? 1.0 / decision.ready : weight(sign.samples);
  {
    const Unlocked unlocked(lock);
    work_.sum(round);
  }
  work_.finish(round);
  closed_at_ = round.step;
  totals_.missed += static_cast<std::int64_t>(signs_.size()) - decision.ready;
  std::ranges::transform(signs_, totals_.skipped.begin(), &Sign::skipped);
  outcome_ = !round.on_time ? Outcome::kMissed : round.full ? Outcome::kFull : Outcome::kClosed;
  own_.behind = round.on_time ? 0 : own_.behind + 1;
  own_.ready = 0;  // a rank that has come meanwhile is late
  if (round.on_time) period_start_ = base::steady_seconds();
  if (round.kind != StaleRound::Kind::kScheduled) running_ = false;
  changed_.notify_all();
}

}  // namespace engine
