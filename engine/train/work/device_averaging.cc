// Buckets on the communication stream, ordered with the computing stream by events: capturable
// where the communicator is.
#include "engine/train/work/device_averaging.h"

#include <algorithm>
#include <string>
#include <vector>

#include "backends/control_word.h"

namespace engine {
namespace {

constexpr std::int64_t kFirstBucketBytes = 1 << 20;

class Sum final : public DeviceGradientSum {
 public:
  Sum(backends::DeviceCommunicator& communicator, const FlatBuffer& gradients,
      const DeviceSumOptions& options)
      : communicator_(communicator),
        data_(static_cast<float*>(gradients.data())),
        overlap_(options.overlap) {
    require(gradients.dtype() == DType::kF32, "gradients on a device are f32");
    const std::int64_t most =
        std::max<std::int64_t>(1, options.bucket_bytes / static_cast<std::int64_t>(sizeof(float)));
    std::vector<backends::ControlWord> calls;
    for (std::int64_t begin = 0; begin < gradients.size();) {
      const std::int64_t first = std::min<std::int64_t>(
          most, kFirstBucketBytes / static_cast<std::int64_t>(sizeof(float)));
      const std::int64_t count = std::min(begin == 0 ? first : most, gradients.size() - begin);
      calls.push_back(backends::reduction_word(
          backends::Operation::kAllReduce, static_cast<std::uint32_t>(calls.size() + 1),
          static_cast<std::size_t>(count), DType::kF32, backends::ReduceOp::kSum));
      ends_.push_back(begin += count);
    }
    filled_ = std::vector<cuda::Event>(ends_.size());
    communicator.agree(calls);
    communicator.register_memory(data_, gradients.bytes());
  }

  ~Sum() override { communicator_.release(data_); }  // before the memory goes

  void ready(std::int64_t elements, void* stream) override {
    if (overlap_) send(elements, stream);
  }

  void finish(void* stream) override {
    send(ends_.empty() ? 0 : ends_.back(), stream);
    sent_ = 0;
    summed_.record(stream_.handle());
    summed_.make_wait(stream);
  }

  bool capturable() const override { return communicator_.capturable(); }
  void wait(void* stream) override {
    communicator_.wait(stream_.handle());  // a step that failed on the way has not joined the two
    communicator_.wait(stream);
  }

 private:
  void send(std::int64_t elements, void* stream) {
    for (; sent_ < ends_.size() && ends_[sent_] <= elements; ++sent_) {
      const std::int64_t begin = sent_ == 0 ? 0 : ends_[sent_ - 1];
      filled_[sent_].record(stream);
      filled_[sent_].make_wait(stream_.handle());
      communicator_.all_reduce_on(stream_.handle(), data_ + begin,
                                  static_cast<std::size_t>(ends_[sent_] - begin), DType::kF32,
                                  backends::ReduceOp::kSum);
    }
  }

  backends::DeviceCommunicator& communicator_;
  float* const data_;
  const bool overlap_;
  cuda::Stream stream_;
  std::vector<std::int64_t> ends_;  // one past each bucket's last element
  std::vector<cuda::Event> filled_;
  cuda::Event summed_;
  std::size_t sent_ = 0;  // buckets of this step
};

class Averaging final : public AveragingPolicy {
 public:
  explicit Averaging(const FlatBuffer& gradients)
      : bytes_(static_cast<std::int64_t>(gradients.bytes())),
        parameters_(gradients.slots().size()) {}

  std::string_view name() const override { return "grad"; }
  double loss_scale(const StepCounts& counts) const override {
    return counts.global == 0 ? 0 : 1.0 / static_cast<double>(counts.global);
  }
  bool update_touches_state() const override { return false; }
  void after_update(const StepCounts&, double) override { ++averagings_; }
  PolicyCounters counters() const override {
    return {{"averagings", averagings_}, {"bytes_sent", bytes_sent()}};
  }
  void restore_counters(const PolicyCounters& counters) override {
    averagings_ = find_counter(counters, "averagings", 0);
  }
  std::int64_t averagings() const override { return averagings_; }
  std::string coverage() const override {
    const std::string n = std::to_string(parameters_);
    return "averaged the gradients of " + n + "/" + n + " parameters in each of " +
           std::to_string(averagings_) + " steps, on the device";
  }
  std::int64_t bytes_sent() const override { return averagings_ * bytes_; }

 private:
  const std::int64_t bytes_;
  const std::size_t parameters_;
  std::int64_t averagings_ = 0;
};

}  // namespace

std::unique_ptr<DeviceGradientSum> make_device_sum(backends::DeviceCommunicator& communicator,
                                                   const FlatBuffer& gradients,
                                                   const DeviceSumOptions& options) {
  return std::make_unique<Sum>(communicator, gradients, options);
}

std::unique_ptr<AveragingPolicy> make_device_gradient_averaging(const FlatBuffer& gradients) {
  return std::make_unique<Averaging>(gradients);
}

}  // namespace engine
