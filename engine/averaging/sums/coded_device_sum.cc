// Sums buckets of gradients as codes. The codes of a bucket are computed while backward runs.
// Sparse gradients are one bucket, as in host memory.
//
// If the devices exchange them, everything is enqueued on one stream, which can be captured.
// Otherwise finish() exchanges them in host memory, bucket by bucket: it begins when backward is
// issued, and mostly not complete. The results have a stream of their own, since the codes of later
// buckets wait for backward.
#include <vector>

#include "engine/averaging/codes/device_coded_sum.h"
#include "engine/averaging/sums/device_sum.h"
#include "engine/core/cuda.h"
#include "engine/ops/optim_step/step_numbers.h"
#include "io/base/time/trace.h"

namespace engine {
namespace {

std::vector<Elements> bucket_ranges(std::int64_t elements, DType dtype, const LossyOptions& codes,
                                    const BucketOptions& options) {
  if (codes.kind == LossyOptions::Kind::kSparse) return {{0, elements}};
  std::vector<Elements> ranges;
  std::int64_t first = 0;
  for (const std::int64_t end : bucket_ends(elements, size_of(dtype), options.bytes)) {
    ranges.push_back({first, end - first});
    first = end;
  }
  return ranges;
}

class CodedDeviceSum final : public DeviceGradientSum {
 public:
  CodedDeviceSum(const CodeExchange& exchange, const FlatBuffer& gradients,
                 const LossyOptions& options, const BucketOptions& buckets)
      : devices_(exchange.on_devices),
        gradients_(gradients),
        overlap_(buckets.overlap),
        buckets_(bucket_ranges(gradients.size(), gradients.dtype(), options, buckets)),
        sum_(exchange, options, "gradients", buckets_, gradients.device()),
        pieces_(sum_.pieces(buckets_, 0)),
        filled_(buckets_.size()) {
    if (devices_ != nullptr) devices_->agree(sum_.calls(pieces_));
  }

  void set_errors(std::span<const FlatBuffer* const> errors) override {
    require(!errors.empty() && errors.size() == (sum_.options().momentum > 0 ? 2U : 1U),
            "a sum of codes without the memory of its errors");
    error_ = errors.front();
    velocity_ = errors.size() > 1 ? errors.back() : nullptr;
  }
  std::int64_t variant(std::int64_t round) const override { return sum_.kept_in(round); }
  // The first steps of a variant are not captured.
  void begin_step(const StepNumbers* numbers, std::int64_t round) override {
    const bool changes = variant(round) != variant(round_.number);
    round_ = {.number = round, .at = &numbers->round};
    if (!changes) return;
    pieces_ = sum_.pieces(buckets_, round);
    if (devices_ != nullptr) devices_->agree(sum_.calls(pieces_));
  }

  void ready(std::int64_t elements, void* stream) override {
    if (overlap_) send(elements, stream);
  }

  void finish(void* stream) override {
    const base::TraceSpan span("wait for averaging");
    send(gradients_.size(), stream);
    if (devices_ == nullptr)
      for (std::size_t i = 0; i < pieces_.size(); ++i)
        sum_.complete(i, pieces_[i], spans(), round_, decoding_.handle());
    drop_step();
    summed_.record(devices_ == nullptr ? decoding_.handle() : encoding_.handle());
    summed_.make_wait(stream);
  }

  void drop_step() override {
    bucket_ = 0;
    sent_ = 0;
  }
  std::string first_failure(const std::string& own) override {
    return devices_ != nullptr ? devices_->first_failure(own) : own;
  }
  bool capturable() const override { return devices_ != nullptr && devices_->capturable(); }
  std::string_view exchanged() const override { return "codes of gradients"; }

  // In a step that failed midway, the streams are not joined.
  void wait(void* stream) override {
    wait_for(devices_, {encoding_.handle(), decoding_.handle(), stream});
  }

 private:
  DeviceCodedSum::Spans spans() const {
    require(error_ != nullptr, "a sum of codes without the memory of its errors");
    return {gradients_.flat(), error_->flat(), error_->flat(),
            velocity_ != nullptr ? velocity_->flat() : TensorView{}};
  }

  void send(std::int64_t elements, void* stream) {
    for (; bucket_ < buckets_.size(); ++bucket_) {
      const std::int64_t end = buckets_[bucket_].first + buckets_[bucket_].count;
      if (end > elements) return;
      filled_[bucket_].record(stream);
      filled_[bucket_].make_wait(encoding_.handle());
      for (; sent_ < pieces_.size() && pieces_[sent_].cut.range.first < end; ++sent_) {
        sum_.encode(sent_, pieces_[sent_], spans(), round_, encoding_.handle());
        if (devices_ != nullptr)
          sum_.complete(sent_, pieces_[sent_], spans(), round_, encoding_.handle());
      }
    }
  }

  backends::DeviceCommunicator* const devices_;  // null: codes are exchanged in host memory
  const FlatBuffer& gradients_;
  const FlatBuffer *error_ = nullptr, *velocity_ = nullptr;
  const bool overlap_;
  const std::vector<Elements> buckets_;
  DeviceCodedSum sum_;
  std::vector<DeviceCodedSum::Piece> pieces_;  // of the round
  DeviceCodedSum::Round round_;
  // They run before pending kernels of backward.
  cuda::Stream encoding_{cuda::Priority::kHighest}, decoding_{cuda::Priority::kHighest};
  std::vector<cuda::Event> filled_;
  cuda::Event summed_;
  std::size_t bucket_ = 0, sent_ = 0;  // buckets and pieces issued in this step
};

}  // namespace

std::unique_ptr<DeviceGradientSum> make_coded_device_sum(const CodeExchange& exchange,
                                                         const FlatBuffer& gradients,
                                                         const LossyOptions& options,
                                                         const BucketOptions& buckets) {
  return std::make_unique<CodedDeviceSum>(exchange, gradients, options, buckets);
}

std::size_t coded_device_sum_bytes(const LossyOptions& options, std::int64_t elements, DType dtype,
                                   const BucketOptions& buckets, int ranks) {
  return device_coded_bytes(options, bucket_ranges(elements, dtype, options, buckets), ranks);
}

}  // namespace engine
