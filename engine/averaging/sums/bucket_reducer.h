// Sums a flat buffer over all ranks bucket by bucket while it is still being filled from the front.
//
// Backward completes gradients layer by layer, from the last layer on, and the buffer lies in that
// order; so a prefix of it is final long before backward ends. Sending that prefix meanwhile hides
// most of the communication. Buckets are a compromise: small ones start earlier, large ones have
// less overhead per byte. The same idea as in PyTorch's DistributedDataParallel.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/averaging/sums/bucket_cut.h"
#include "engine/averaging/sums/gradient_exchange.h"
#include "engine/averaging/sums/gradient_sum.h"

namespace engine {

// Buckets are slices of the buffer, in order, the same on every rank; for a sum that wants all
// elements at once, the whole is the only one. With `overlap`, a thread of the reducer's own sums
// buckets as they fill; without, and for the whole, finish() does.
class BucketReducer final : public GradientExchange {
 public:
  // `sum`, of that buffer, and `buffer` outlive the reducer.
  BucketReducer(GradientSum& sum, const FlatBuffer& buffer, const BucketOptions& options);
  ~BucketReducer() override;
  BucketReducer(const BucketReducer&) = delete;
  BucketReducer& operator=(const BucketReducer&) = delete;

  void ready(std::int64_t elements) override;
  // Rethrows what the communicator threw; then the reducer is of no further use.
  void finish() override;
  double norm(KernelContext& context, const FlatBuffer& gradients) override;

 private:
  void reduce(std::size_t bucket);
  void work();

  GradientSum& sum_;
  const std::int64_t size_;  // elements of the buffer
  const bool overlap_;
  std::vector<std::int64_t> ends_;  // one past each bucket's last element

  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t filled_ = 0;  // elements ready in this step
  std::size_t done_ = 0;     // buckets summed in this step
  bool stop_ = false;
  std::exception_ptr failure_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace engine
