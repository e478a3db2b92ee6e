// Implements the communication thread.
#include "engine/averaging/sums/bucket_reducer.h"

#include "io/base/time/trace.h"

namespace engine {

BucketReducer::BucketReducer(GradientSum& sum, const FlatBuffer& buffer,
                             const BucketOptions& options)
    : sum_(sum),
      size_(buffer.size()),
      overlap_(options.overlap && !sum.whole()),
      ends_(sum.whole()
                ? std::vector{size_}
                : bucket_ends(size_, size_of(buffer.dtype()), options.bytes, options.multiple)) {
  if (!overlap_) return;
  thread_ = std::thread([this, tracer = base::Tracer::of_this_thread()] {
    const base::TraceThread traced(tracer, "averaging");
    work();
  });
}

BucketReducer::~BucketReducer() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void BucketReducer::reduce(std::size_t bucket) {
  const base::TraceSpan span("bucket", {"bucket", static_cast<std::int64_t>(bucket)});
  const std::int64_t first = bucket == 0 ? 0 : ends_[bucket - 1];
  sum_.sum(first, ends_[bucket] - first);
}

void BucketReducer::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || (done_ < ends_.size() && filled_ >= ends_[done_]); });
    if (stop_) return;
    const std::size_t bucket = done_;
    lock.unlock();
    std::exception_ptr failure;
    try {
      reduce(bucket);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failure_ = failure;
    ++done_;
    changed_.notify_all();
    if (failure_) return;
  }
}

void BucketReducer::ready(std::int64_t elements) {
  const std::lock_guard lock(mutex_);
  filled_ = elements;
  if (overlap_ && done_ < ends_.size() && filled_ >= ends_[done_]) changed_.notify_all();
}

double BucketReducer::norm(KernelContext& context, const FlatBuffer& gradients) {
  return sum_.norm(context, gradients);
}

void BucketReducer::finish() {
  std::unique_lock lock(mutex_);
  require(filled_ == size_, "gradients were not completed before the reducer was finished");
  if (overlap_) {
    changed_.wait(lock, [&] { return failure_ || done_ == ends_.size(); });
  } else {
    for (; done_ < ends_.size(); ++done_) reduce(done_);
  }
  if (failure_) std::rethrow_exception(failure_);
  filled_ = 0;
  done_ = 0;
}

}  // namespace engine
