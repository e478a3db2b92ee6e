// Runs the exchanges of fragments in a thread.
#include "engine/averaging/policies/fragment_exchange.h"

#include "engine/core/error.h"
#include "io/base/time/trace.h"

namespace engine {

FragmentExchange::FragmentExchange(backends::Communicator& communicator, bool overlap)
    : communicator_(communicator), overlap_(overlap) {
  if (!overlap_) return;
  thread_ = std::thread([this, tracer = base::Tracer::of_this_thread()] {
    const base::TraceThread traced(tracer, "averaging");
    work();
  });
}

FragmentExchange::~FragmentExchange() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    if (!pending_.empty() && !failure_) communicator_.abort("the training run ended");
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void FragmentExchange::reduce(const TensorView& values) {
  const base::TraceSpan span("fragment");
  communicator_.all_reduce(values.data, static_cast<std::size_t>(values.shape.count()),
                           values.dtype, backends::ReduceOp::kSum);
}

void FragmentExchange::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || !pending_.empty(); });
    if (stop_) return;
    const TensorView values = pending_.front();
    lock.unlock();
    std::exception_ptr failure;
    try {
      reduce(values);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failure_ = failure;
    if (!failure) ++ended_;
    pending_.pop_front();
    changed_.notify_all();
    if (failure_) return;
  }
}

void FragmentExchange::start(TensorView values) {
  if (!overlap_) {
    reduce(values);
    ++ended_;
    return;
  }
  const std::lock_guard lock(mutex_);
  require(!failure_, "an exchange was started after one had failed");
  pending_.push_back(values);
  changed_.notify_all();
}

void FragmentExchange::wait(std::size_t remaining) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failure_ || pending_.size() <= remaining; });
  if (failure_) std::rethrow_exception(failure_);
}

std::size_t FragmentExchange::settle() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failure_ || pending_.empty(); });
  return ended_;
}

}  // namespace engine
