// Sums buckets on the communication stream. Events order it with the computing stream, so that the
// sum can be captured if the communicator can.
#include "engine/averaging/sums/device_sum.h"

#include <vector>

#include "engine/core/cuda.h"

namespace engine {
namespace {

class Sum final : public DeviceGradientSum {
 public:
  Sum(backends::DeviceCommunicator& communicator, const FlatBuffer& gradients,
      const BucketOptions& options)
      : communicator_(communicator),
        data_(static_cast<std::byte*>(gradients.data())),
        dtype_(gradients.dtype()),
        overlap_(options.overlap),
        ends_(bucket_ends(gradients.size(), size_of(dtype_), options.bytes)),
        filled_(ends_.size()) {
    communicator.agree(calls_of_buckets(ends_, dtype_));
    communicator.register_memory(data_, gradients.bytes());
  }

  ~Sum() override { communicator_.deregister_memory(data_); }  // before the memory is freed

  void ready(std::int64_t elements, void* stream) override {
    if (overlap_) send(elements, stream);
  }

  void finish(void* stream) override {
    send(ends_.empty() ? 0 : ends_.back(), stream);
    sent_ = 0;
    summed_.record(stream_.handle());
    summed_.make_wait(stream);
  }

  void drop_step() override { sent_ = 0; }
  std::string first_failure(const std::string& own) override {
    return communicator_.first_failure(own);
  }
  bool capturable() const override { return communicator_.capturable(); }
  void wait(void* stream) override {
    // A step that failed midway has not joined the two streams.
    wait_for(&communicator_, {stream_.handle(), stream});
  }

 private:
  std::int64_t begin(std::size_t bucket) const { return bucket == 0 ? 0 : ends_[bucket - 1]; }

  void send(std::int64_t elements, void* stream) {
    for (; sent_ < ends_.size() && ends_[sent_] <= elements; ++sent_) {
      filled_[sent_].record(stream);
      filled_[sent_].make_wait(stream_.handle());
      communicator_.all_reduce_on(
          stream_.handle(), data_ + static_cast<std::size_t>(begin(sent_)) * size_of(dtype_),
          static_cast<std::size_t>(ends_[sent_] - begin(sent_)), dtype_, backends::ReduceOp::kSum);
    }
  }

  backends::DeviceCommunicator& communicator_;
  std::byte* const data_;
  const DType dtype_;
  const bool overlap_;
  // Runs before pending kernels of backward; otherwise the sums would end long after backward.
  cuda::Stream stream_{cuda::Priority::kHighest};
  const std::vector<std::int64_t> ends_;  // one past each bucket's last element
  std::vector<cuda::Event> filled_;
  cuda::Event summed_;
  std::size_t sent_ = 0;  // buckets issued in this step
};

}  // namespace

std::vector<backends::ControlWord> calls_of_buckets(std::span<const std::int64_t> ends,
                                                    DType dtype) {
  std::vector<backends::ControlWord> calls;
  std::int64_t begin = 0;
  for (const std::int64_t end : ends) {
    calls.push_back(backends::reduction_word(
        backends::Operation::kAllReduce, static_cast<std::uint32_t>(calls.size() + 1),
        static_cast<std::size_t>(end - begin), dtype, backends::ReduceOp::kSum));
    begin = end;
  }
  return calls;
}

void wait_for(backends::DeviceCommunicator* devices, std::initializer_list<void*> streams) {
  for (void* stream : streams) {
    if (devices != nullptr) {
      devices->wait(stream);
    } else {
      cuda::Event end;
      end.record(stream);
      end.synchronize();
    }
  }
}

MemorySource gradient_memory(backends::DeviceCommunicator& communicator) {
  return {.allocate = [&communicator](std::size_t bytes) { return communicator.allocate(bytes); },
          .release = [&communicator](void* memory) { communicator.release(memory); }};
}

std::unique_ptr<DeviceGradientSum> make_device_sum(backends::DeviceCommunicator& communicator,
                                                   const FlatBuffer& gradients,
                                                   const BucketOptions& options) {
  return std::make_unique<Sum>(communicator, gradients, options);
}

}  // namespace engine
