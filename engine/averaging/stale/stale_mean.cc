// Sums on one thread, beside the training.
#include "engine/averaging/stale/stale_mean.h"

#include <cstring>
#include <utility>

#include "engine/averaging/math/flat_math.h"
#include "engine/averaging/policies/outer_rate.h"
#include "engine/ops/optim_step/optimizer_step.h"

namespace engine {
namespace {

using Kind = StaleRound::Kind;

// to += a - b, over the first `count` elements.
void add_difference(std::int64_t count, const FlatBuffer& a, const FlatBuffer& b,
                    const FlatBuffer& to) {
  with_element_type(to.dtype(), [&]<class T>(T) {
    const T *x = a.span<T>().data(), *y = b.span<T>().data();
    T* z = to.span<T>().data();
    for (std::int64_t i = 0; i < count; ++i) z[i] += x[i] - y[i];
  });
}

}  // namespace

StaleMean::StaleMean(backends::Communicator& communicator, ParameterBuffer& parameters,
                     const SyncSchedule& schedule, const std::optional<OuterOptions>& outer)
    : communicator_(communicator),
      parameters_(parameters),
      schedule_(schedule),
      trained_(parameters.trained_elements(parameters.values)),
      pool_(1),
      context_{.device = {}, .threads = &pool_, .scratch = {}},
      start_(FlatBuffer::like(parameters.gradients)),
      kept_(FlatBuffer::like(parameters.gradients)),
      offered_(FlatBuffer::like(parameters.gradients)) {
  sum_.values = FlatBuffer::like(parameters.gradients);
  sum_.gradients = FlatBuffer::like(parameters.gradients);
  require(!outer || !outer->over_inner_rate, "outer steps beside the training know no inner rate");
  if (outer)
    outer_.emplace(sum_, context_, *outer);
  else
    plain_anchor_ = FlatBuffer::like(parameters.gradients);
}

std::size_t StaleMean::trained_bytes() const {
  return static_cast<std::size_t>(trained_) * size_of(start_.dtype());
}

void StaleMean::copy(const FlatBuffer& from, const FlatBuffer& to) const {
  if (trained_ > 0) std::memcpy(to.data(), from.data(), trained_bytes());
}

void StaleMean::clear(const FlatBuffer& buffer) const {
  if (trained_ > 0) std::memset(buffer.data(), 0, trained_bytes());
}

void StaleMean::fetch_values(StateMath* home) const {
  if (home != nullptr) home->fetch(rows(parameters_.values));
}

void StaleMean::store_values(StateMath* home) const {
  if (home != nullptr) home->store(rows(parameters_.values));
}

void StaleMean::start() {
  copy(parameters_.values, sum_.values);
  copy(parameters_.values, start_);
  if (outer_)
    outer_->start();
  else
    copy(parameters_.values, plain_anchor_);
}

void StaleMean::keep_change(std::int64_t samples) {
  if (samples > 0) {
    add_difference(trained_, parameters_.values, start_, kept_);
    kept_samples_ += samples;
  }
  if (trained_ > 0) std::memcpy(start_.data(), anchor().data, trained_bytes());
  copy(start_, parameters_.values);
}

std::int64_t StaleMean::offer() {
  if (kept_samples_ == 0) return offered_samples_;
  if (offered_samples_ > 0)
    add_rows(context_, 1, rows(kept_), rows(offered_));
  else
    copy(kept_, offered_);
  clear(kept_);
  offered_samples_ += std::exchange(kept_samples_, 0);
  return offered_samples_;
}

void StaleMean::sum(const StaleRound& round) {
  if (round.kind == Kind::kPause) return;
  if (round.on_time) {
    copy(parameters_.values, sum_.values);
    ops::scale(context_, round.own_weight, rows(sum_.values));
  } else {
    clear(sum_.values);
  }
  if (round.kept_weight > 0) {
    add_rows(context_, round.kept_weight, anchor(), rows(sum_.values));
    add_rows(context_, round.kept_weight, rows(offered_), rows(sum_.values));
  }
  communicator_.all_reduce(sum_.values.data(), static_cast<std::size_t>(trained_),
                           sum_.values.dtype(), backends::ReduceOp::kSum);
}

void StaleMean::finish(const StaleRound& round) {
  if (round.kind == Kind::kPause) return;
  offered_samples_ = 0;
  ++averagings_;
  bytes_sent_ += static_cast<std::int64_t>(trained_bytes());
  if (round.kind == Kind::kScheduled) {
    if (outer_)
      outer_->apply(1, period_at(schedule_, round.step));
    else
      copy(sum_.values, plain_anchor_);
  }
  if (round.on_time) copy(sum_.values, start_);
}

void StaleMean::add_counters(PolicyCounters& counters) const {
  counters.emplace_back("averagings", averagings_);
  counters.emplace_back("bytes_sent", bytes_sent_);
  if (outer_) outer_->add_counters(counters);
}

void StaleMean::restore_counters(const PolicyCounters& counters) {
  averagings_ = find_counter(counters, "averagings", 0);
  bytes_sent_ = find_counter(counters, "bytes_sent", 0);
  if (outer_) outer_->restore_counters(counters);
}

std::vector<PolicyState> StaleMean::state() {
  return outer_ ? outer_->state() : std::vector<PolicyState>{};
}

std::string StaleMean::text(std::int64_t steps) const {
  const std::string text = "averaged " + std::to_string(parameters_.gradients.slots().size()) +
                           "/" + std::to_string(parameters_.values.slots().size()) +
                           " parameters " + std::to_string(averagings_) + " times in " +
                           std::to_string(steps) + " steps";
  return outer_ ? text + ", with " + std::to_string(outer_->steps()) + " outer steps" : text;
}

}  // namespace engine
