// Posts the buckets of each step to the queue.
#include "engine/averaging/sums/bucket_reducer.h"

#include "io/base/time/trace.h"

namespace engine {

BucketReducer::BucketReducer(GradientSum& sum, const FlatBuffer& buffer,
                             const BucketOptions& options)
    : sum_(sum),
      size_(buffer.size()),
      ends_(sum.whole()
                ? std::vector{size_}
                : bucket_ends(size_, size_of(buffer.dtype()), options.bytes, options.multiple)),
      queue_([this](std::size_t number) { reduce(number % ends_.size()); },
             options.overlap && !sum.whole() ? "averaging" : nullptr) {}

void BucketReducer::reduce(std::size_t bucket) {
  const base::TraceSpan span("bucket", {"bucket", static_cast<std::int64_t>(bucket)});
  const std::int64_t first = bucket == 0 ? 0 : ends_[bucket - 1];
  sum_.sum(first, ends_[bucket] - first);
}

void BucketReducer::ready(std::int64_t elements) {
  filled_ = elements;
  const std::size_t full = full_;
  while (full_ < ends_.size() && ends_[full_] <= elements) ++full_;
  if (full_ > full) queue_.post(before_ + full_);
}

double BucketReducer::norm(KernelContext& context, const FlatBuffer& gradients) {
  return sum_.norm(context, gradients);
}

void BucketReducer::finish() {
  require(filled_ == size_, "gradients were not completed before the reducer was finished");
  before_ += ends_.size();
  queue_.wait(before_);
  filled_ = 0;
  full_ = 0;
}

}  // namespace engine
