// Sums a flat buffer over all ranks bucket by bucket while backward fills it from the front.
//
// Backward completes gradients layer by layer, from the last layer to the first, and the buffer has
// that order; so a prefix of it is final long before backward ends. Sending that prefix early hides
// most of the communication. The bucket size is a compromise: small buckets start earlier, large
// ones have less overhead per byte. PyTorch's DistributedDataParallel uses the same method.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/averaging/sums/bucket_cut.h"
#include "engine/averaging/sums/gradient_exchange.h"
#include "engine/averaging/sums/gradient_sum.h"
#include "io/base/threads/ordered_queue.h"

namespace engine {

// Buckets are consecutive slices of the buffer, the same on every rank; a sum that needs all
// elements at once has a single bucket. With `overlap`, the queue's thread sums buckets as they
// fill; without it, and for a single bucket, finish() sums them.
class BucketReducer final : public GradientExchange {
 public:
  // `sum`, which must be made for `buffer`, and `buffer` must outlive the reducer.
  BucketReducer(GradientSum& sum, const FlatBuffer& buffer, const BucketOptions& options);

  void ready(std::int64_t elements) override;
  // Rethrows the communicator's exception; after that the reducer cannot be used.
  void finish() override;
  void wait_idle() noexcept override { static_cast<void>(queue_.wait_idle()); }
  double norm(KernelContext& context, const FlatBuffer& gradients) override;

 private:
  void reduce(std::size_t bucket);

  GradientSum& sum_;
  const std::int64_t size_;               // number of elements of the buffer
  const std::vector<std::int64_t> ends_;  // one past each bucket's last element
  std::int64_t filled_ = 0;               // number of elements ready in this step
  std::size_t full_ = 0;                  // number of full buckets of this step
  std::size_t before_ = 0;                // number of buckets of earlier steps
  base::OrderedQueue queue_;              // declared last: its thread uses the members above
};

}  // namespace engine
