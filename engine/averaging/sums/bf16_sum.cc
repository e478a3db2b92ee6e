// Sums gradients that are sent as bfloat16, in host memory or on CUDA devices.
#include <cmath>
#include <memory>
#include <vector>

#include "engine/averaging/codes/device_coded_sum.h"
#include "engine/averaging/math/flat_math.h"
#include "engine/averaging/sums/device_sum.h"
#include "engine/averaging/sums/gradient_sum.h"
#include "engine/core/cuda.h"
#include "engine/ops/codes/bf16_codes.h"
#include "io/base/numbers/half.h"
#include "io/base/time/trace.h"

namespace engine {
namespace {

class Bf16Sum final : public GradientSum {
 public:
  Bf16Sum(backends::Communicator& communicator, FlatBuffer& gradients)
      : communicator_(communicator),
        gradients_(gradients),
        error_(FlatBuffer::like(gradients)),
        wire_(static_cast<std::size_t>(gradients.size())) {}
  std::string note() const override { return " (bf16)"; }
  void sum(std::int64_t first, std::int64_t count) override {
    with_element_type(gradients_.dtype(), [&]<class T>(T) {
      T* gradient = gradients_.span<T>().data() + first;
      T* error = error_.span<T>().data() + first;
      base::bf16* wire = wire_.data() + first;
      for (std::int64_t i = 0; i < count; ++i) {
        const T owed = gradient[i] + error[i];
        wire[i] = base::from_float<base::bf16>(static_cast<float>(owed));
        const T dropped = owed - static_cast<T>(base::to_float(wire[i]));
        error[i] = std::isfinite(dropped) ? dropped : T(0);  // a later step cannot repair it
      }
      communicator_.all_reduce(wire, static_cast<std::size_t>(count), DType::kBF16,
                               backends::ReduceOp::kSum);
      for (std::int64_t i = 0; i < count; ++i)
        gradient[i] = static_cast<T>(base::to_float(wire[i]));
    });
    bytes_sent_ += count * static_cast<std::int64_t>(sizeof(base::bf16));
  }
  std::vector<PolicyState> state() override { return {{"gradient_error", &error_, true}}; }

 private:
  backends::Communicator& communicator_;
  FlatBuffer& gradients_;
  FlatBuffer error_;
  std::vector<base::bf16> wire_;
};

constexpr std::size_t kCodeBytes = sizeof(base::bf16);

// Codes are computed on the device. If the devices exchange them, everything is enqueued on one
// stream, which can be captured. Otherwise the codes alone pass through host memory, bucket by
// bucket in finish(), and the results have a stream of their own, since the codes of later buckets
// wait for backward.
class Bf16DeviceSum final : public DeviceGradientSum {
 public:
  Bf16DeviceSum(const CodeExchange& exchange, const FlatBuffer& gradients,
                const BucketOptions& options)
      : exchange_(exchange),
        gradients_(gradients),
        overlap_(options.overlap),
        ends_(bucket_ends(gradients.size(), size_of(gradients.dtype()), options.bytes)),
        codes_(static_cast<std::size_t>(gradients.size()) * kCodeBytes, gradients.device(),
               "averaging"),
        filled_(ends_.size()),
        encoded_(ends_.size()) {
    if (exchange.on_devices == nullptr) {
      require(exchange.in_host_memory != nullptr, "codes are exchanged by a communicator");
      staged_ = std::make_unique<cuda::PinnedMemory>(codes_.bytes());
      return;
    }
    exchange.on_devices->agree(calls_of_buckets(ends_, DType::kBF16));
    exchange.on_devices->register_memory(codes_.data(), codes_.bytes());
  }

  ~Bf16DeviceSum() override {  // before the memory is freed
    if (exchange_.on_devices != nullptr) exchange_.on_devices->deregister_memory(codes_.data());
  }

  void set_errors(std::span<const FlatBuffer* const> errors) override {
    require(errors.size() == 1, "a sum of codes without the memory of its errors");
    error_ = errors.front();
  }

  void ready(std::int64_t elements, void* stream) override {
    if (overlap_) send(elements, stream);
  }

  void finish(void* stream) override {
    const base::TraceSpan span("wait for averaging");
    send(gradients_.size(), stream);
    drop_step();
    if (staged_)
      for (std::size_t bucket = 0; bucket < ends_.size(); ++bucket) exchange_on_host(bucket);
    summed_.record(staged_ ? decoding_.handle() : encoding_.handle());
    summed_.make_wait(stream);
  }

  void drop_step() override { sent_ = 0; }
  std::string first_failure(const std::string& own) override {
    return staged_ ? own : exchange_.on_devices->first_failure(own);
  }
  bool capturable() const override { return !staged_ && exchange_.on_devices->capturable(); }
  std::string_view exchanged() const override { return "codes of gradients"; }

  // In a step that failed midway, the streams are not joined.
  void wait(void* stream) override {
    wait_for(exchange_.on_devices, {encoding_.handle(), decoding_.handle(), stream});
  }

 private:
  std::int64_t begin(std::size_t bucket) const { return bucket == 0 ? 0 : ends_[bucket - 1]; }
  std::size_t count(std::size_t bucket) const {
    return static_cast<std::size_t>(ends_[bucket] - begin(bucket));
  }
  std::byte* codes(std::size_t bucket, std::byte* all) const {
    return all + static_cast<std::size_t>(begin(bucket)) * kCodeBytes;
  }

  TensorView view(std::size_t bucket, const FlatBuffer& all) const {
    TensorView part = all.flat();
    part.data = static_cast<std::byte*>(part.data) +
                static_cast<std::size_t>(begin(bucket)) * size_of(part.dtype);
    part.shape = {ends_[bucket] - begin(bucket)};
    return part;
  }
  TensorView view_of_codes(std::size_t bucket) const {
    return {codes(bucket, codes_.data()), DType::kBF16, Shape{ends_[bucket] - begin(bucket)},
            gradients_.device()};
  }
  KernelContext context_on(void* stream) const {
    KernelContext context;
    context.device = gradients_.device();
    context.stream = stream;
    return context;
  }

  void send(std::int64_t elements, void* stream) {
    for (; sent_ < ends_.size() && ends_[sent_] <= elements; ++sent_) {
      require(error_ != nullptr, "a sum of codes without the memory of its errors");
      filled_[sent_].record(stream);
      filled_[sent_].make_wait(encoding_.handle());
      KernelContext context = context_on(encoding_.handle());
      ops::encode_bf16(context, view(sent_, gradients_), view(sent_, *error_),
                       view_of_codes(sent_));
      if (staged_) {
        cuda::copy_async(codes(sent_, staged_->data()), codes(sent_, codes_.data()),
                         count(sent_) * kCodeBytes, encoding_.handle());
        encoded_[sent_].record(encoding_.handle());
        continue;
      }
      exchange_.on_devices->all_reduce_on(encoding_.handle(), codes(sent_, codes_.data()),
                                          count(sent_), DType::kBF16, backends::ReduceOp::kSum);
      ops::decode_bf16(context, view_of_codes(sent_), view(sent_, gradients_));
    }
  }

  void exchange_on_host(std::size_t bucket) {
    std::byte* const here = codes(bucket, staged_->data());
    encoded_[bucket].synchronize();
    exchange_.in_host_memory->all_reduce(here, count(bucket), DType::kBF16,
                                         backends::ReduceOp::kSum);
    cuda::copy_async(codes(bucket, codes_.data()), here, count(bucket) * kCodeBytes,
                     decoding_.handle());
    KernelContext context = context_on(decoding_.handle());
    ops::decode_bf16(context, view_of_codes(bucket), view(bucket, gradients_));
  }

  const CodeExchange exchange_;
  const FlatBuffer& gradients_;
  const FlatBuffer* error_ = nullptr;
  const bool overlap_;
  const std::vector<std::int64_t> ends_;  // one past each bucket's last element
  Arena codes_;
  std::unique_ptr<cuda::PinnedMemory> staged_;  // the codes in host memory; null: never there
  // They run before pending kernels of backward.
  cuda::Stream encoding_{cuda::Priority::kHighest}, decoding_{cuda::Priority::kHighest};
  std::vector<cuda::Event> filled_, encoded_;
  cuda::Event summed_;
  std::size_t sent_ = 0;  // buckets issued in this step
};

}  // namespace

std::unique_ptr<GradientSum> make_bf16_sum(backends::Communicator& communicator,
                                           FlatBuffer& gradients) {
  return std::make_unique<Bf16Sum>(communicator, gradients);
}

std::unique_ptr<DeviceGradientSum> make_bf16_device_sum(const CodeExchange& exchange,
                                                        const FlatBuffer& gradients,
                                                        const BucketOptions& buckets) {
  return std::make_unique<Bf16DeviceSum>(exchange, gradients, buckets);
}

}  // namespace engine
