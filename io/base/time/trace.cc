// Implements a ring buffer under a lock: at most two threads of a rank contend for it, once per
// span.
#include "io/base/time/trace.h"

#include <algorithm>
#include <chrono>
#include <map>

namespace base {

std::int64_t Tracer::now_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Tracer::Tracer(std::size_t most, const SpanListener* listener)
    : listener_(listener), spans_(std::max<std::size_t>(1, most)) {}

Tracer* Tracer::of_this_thread() noexcept { return TraceThread::place_.tracer; }

const char* Tracer::keep(std::string_view text) {
  const std::lock_guard lock(mutex_);
  return texts_.emplace(text).first->c_str();
}

std::uint32_t Tracer::add_thread(std::string_view name) {
  const std::lock_guard lock(mutex_);
  threads_.emplace_back(name);
  return static_cast<std::uint32_t>(threads_.size() - 1);
}

void Tracer::add(const Span& span) noexcept {
  const std::lock_guard lock(mutex_);
  spans_[added_++ % spans_.size()] = span;
}

void Tracer::add(std::uint32_t thread, const char* name, std::int64_t begin_ns, std::int64_t end_ns,
                 TraceDetail detail) noexcept {
  add({.name = name,
       .key = detail.key,
       .begin_ns = begin_ns,
       .end_ns = end_ns,
       .value = detail.value,
       .call = 0,
       .thread = thread});
}

Tracer::Record Tracer::record() const {
  Record record;
  std::map<std::string_view, std::uint32_t> numbers{{"", 0}};
  const auto number_of = [&](const char* text) {
    const auto [found, is_new] =
        numbers.try_emplace(text, static_cast<std::uint32_t>(record.names.size()));
    if (is_new) record.names.emplace_back(text);
    return found->second;
  };
  const std::lock_guard lock(mutex_);
  record.threads = threads_;
  const std::uint64_t kept = std::min<std::uint64_t>(added_, spans_.size());
  record.dropped = static_cast<std::int64_t>(added_ - kept);
  record.events.reserve(kept);
  for (std::uint64_t i = added_ - kept; i < added_; ++i) {
    const Span& span = spans_[i % spans_.size()];
    record.events.push_back({.begin_ns = span.begin_ns,
                             .end_ns = span.end_ns,
                             .call = span.call,
                             .value = span.value,
                             .name = number_of(span.name),
                             .key = span.key == nullptr ? 0 : number_of(span.key),
                             .thread = span.thread});
  }
  return record;
}

TraceThread::TraceThread(Tracer* tracer, std::string_view name) : before_(place_) {
  place_ = tracer == nullptr ? Tracer::Place{} : Tracer::Place{tracer, tracer->add_thread(name)};
  if (tracer != nullptr && tracer->listener_ != nullptr)
    tracer->listener_->name_thread(tracer->keep(name));
}

TraceThread::~TraceThread() { place_ = before_; }

void TraceSpan::begin(const char* name, TraceDetail detail, std::uint64_t call) noexcept {
  const Tracer::Place& place = TraceThread::place_;
  if (place.tracer->listener_ != nullptr) {
    tracer_ = place.tracer;
    tracer_->listener_->begin(name);
  }
  if (!place.tracer->recording()) return;
  tracer_ = place.tracer;
  recorded_ = true;
  span_ = {.name = name,
           .key = detail.key,
           .begin_ns = Tracer::now_ns(),
           .end_ns = 0,
           .value = detail.value,
           .call = call,
           .thread = place.thread};
}

void TraceSpan::end() noexcept {
  if (recorded_) {
    span_.end_ns = Tracer::now_ns();
    tracer_->add(span_);
  }
  if (tracer_->listener_ != nullptr) tracer_->listener_->end();
}

}  // namespace base
