// Gathers pieces by all-gathers, and wraps an optimizer that gathers after each step.
#include "engine/averaging/sums/share_gather.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backends/control_word.h"
#include "engine/core/cuda.h"
#include "engine/core/error.h"
#include "engine/ops/optim_step/device_step.h"
#include "io/base/time/trace.h"

namespace engine {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{256} << 10;  // per rank

// Calls call(first, count) for the parts of the elements [from, from + most), counted over all
// parts.
template <class Call>
void for_parts(std::span<const Elements> parts, std::int64_t from, std::int64_t most, Call call) {
  std::int64_t before = 0;
  for (const Elements& part : parts) {
    const std::int64_t first = std::max(from, before),
                       end = std::min(from + most, before + part.count);
    if (first < end) call(part.first + first - before, end - first);
    before += part.count;
    if (before >= from + most) return;
  }
}

}  // namespace

ShareGather::ShareGather(int world, DType dtype)
    : width_(size_of(dtype)),
      piece_(kPieceBytes),
      pieces_(static_cast<std::size_t>(world) * kPieceBytes) {}

void ShareGather::gather(backends::Communicator& communicator, const void* own,
                         std::span<const Elements> own_parts,
                         std::span<const std::vector<Elements>> parts, void* whole) {
  const auto most = static_cast<std::int64_t>(kPieceBytes / width_);
  const auto bytes_of = [this](std::int64_t elements) {
    return static_cast<std::size_t>(elements) * width_;
  };
  std::int64_t longest = 0;
  for (const std::vector<Elements>& theirs : parts) longest = std::max(longest, count_of(theirs));
  for (std::int64_t at = 0; at < longest; at += most) {
    const std::int64_t here = std::min(most, longest - at);
    std::byte* to = piece_.data();
    for_parts(own_parts, at, here, [&](std::int64_t first, std::int64_t count) {
      std::memcpy(to, static_cast<const std::byte*>(own) + bytes_of(first), bytes_of(count));
      to += bytes_of(count);
    });
    communicator.all_gather(piece_.data(), bytes_of(here), pieces_.data());
    if (whole == nullptr) continue;
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      if (own == whole && std::cmp_equal(rank, communicator.rank())) continue;
      const std::byte* from = pieces_.data() + rank * bytes_of(here);
      for_parts(parts[rank], at, here, [&](std::int64_t first, std::int64_t count) {
        std::memcpy(static_cast<std::byte*>(whole) + bytes_of(first), from, bytes_of(count));
        from += bytes_of(count);
      });
    }
  }
}

ParameterGather::ParameterGather(const OptimizerShards& shares, std::int64_t trained, DType dtype)
    : rank_(shares.rank),
      parts_(shares.of_rank),
      pieces_(static_cast<int>(shares.of_rank.size()), dtype) {
  for (std::vector<Elements>& parts : parts_) {
    for (Elements& part : parts) part.count = std::min(part.count, trained - part.first);
    std::erase_if(parts, [](const Elements& part) { return part.count <= 0; });
  }
}

void ParameterGather::gather(const FlatBuffer& values) {
  if (communicator_ == nullptr) throw Error("parameters are gathered by a communicator");
  const base::TraceSpan span("gather parameters");
  pieces_.gather(*communicator_, values.data(), parts_[static_cast<std::size_t>(rank_)], parts_,
                 values.data());
}

void ParameterGather::connect(backends::Communicator& communicator, const FlatBuffer& mirror,
                              backends::DeviceCommunicator* devices) {
  communicator_ = &communicator, mirror_ = &mirror, devices_ = devices;
  if (devices == nullptr) return;
  plan_device_calls();
  std::vector<backends::ControlWord> words;
  for (const DeviceCall& call : device_calls_) {
    const auto number = static_cast<std::uint32_t>(words.size() + 1);
    const std::size_t bytes = static_cast<std::size_t>(call.all.count) * pieces_.width();
    words.push_back(call.root < 0 ? backends::transfer_word(backends::Operation::kAllGather, number,
                                                            bytes / parts_.size())
                                  : backends::transfer_word(backends::Operation::kBroadcast, number,
                                                            bytes, call.root));
  }
  devices->agree(words);
}

// A bucket is cut into equal parts in rank order, unless it is the remainder of the last one.
void ParameterGather::plan_device_calls() {
  struct Owned {
    Elements part;
    int rank;
  };
  std::vector<Owned> all;
  for (std::size_t rank = 0; rank < parts_.size(); ++rank)
    for (const Elements& part : parts_[rank]) all.push_back({part, static_cast<int>(rank)});
  std::ranges::sort(all, {}, [](const Owned& owned) { return owned.part.first; });
  const std::size_t world = parts_.size();
  const auto are_equal = [&](std::size_t at) {
    if (at + world > all.size()) return false;
    const Elements& first = all[at].part;
    for (std::size_t rank = 0; rank < world; ++rank) {
      const Owned& owned = all[at + rank];
      if (std::cmp_not_equal(owned.rank, rank) || owned.part.count != first.count ||
          owned.part.first != first.first + static_cast<std::int64_t>(rank) * first.count)
        return false;
    }
    return true;
  };
  device_calls_.clear();
  for (std::size_t at = 0; at < all.size();) {
    const Elements& part = all[at].part;
    const bool equal = are_equal(at);
    if (equal)
      device_calls_.push_back({{part.first, part.count * static_cast<std::int64_t>(world)}, -1});
    else
      device_calls_.push_back({part, all[at].rank});
    at += equal ? world : 1;
  }
}

void ParameterGather::gather_on_device(void* stream, const FlatBuffer& values) {
  if (devices_ == nullptr) return gather_in_mirror(stream, values);
  for (const DeviceCall& call : device_calls_) {
    const TensorView all = values.part(call.all.first, call.all.count);
    auto* const data = static_cast<std::byte*>(all.data);
    const std::size_t part = all.bytes() / parts_.size();
    if (call.root < 0)
      devices_->all_gather_on(stream, data + static_cast<std::size_t>(rank_) * part, part, data);
    else
      devices_->broadcast_on(stream, data, all.bytes(), call.root);
  }
}

void ParameterGather::gather_in_mirror(void* stream, const FlatBuffer& values) {
  require(mirror_ != nullptr, "values on a device are gathered by way of a mirror");
  const auto copy = [&](const FlatBuffer& to, const FlatBuffer& from, std::size_t rank) {
    for (const Elements& part : parts_[rank]) {
      const TensorView source = from.part(part.first, part.count);
      cuda::copy_async(to.part(part.first, part.count).data, source.data, source.bytes(), stream);
    }
  };
  const auto own = static_cast<std::size_t>(rank_);
  copy(*mirror_, values, own);
  cuda::Event copied;
  copied.record(stream);
  copied.synchronize();
  gather(*mirror_);
  for (std::size_t rank = 0; rank < parts_.size(); ++rank)
    if (rank != own) copy(values, *mirror_, rank);
}

namespace {

class Gathered final : public Optimizer {
 public:
  Gathered(std::unique_ptr<Optimizer> share, ParameterGather& gather)
      : Optimizer(share->spec()), share_(std::move(share)), gather_(gather) {}

  std::string text() const override { return share_->text(); }

  void step(KernelContext& context, double lr, double gradient_scale, const FlatBuffer& gradients,
            FlatBuffer& values) override {
    share_->set_step_count(step_count_);
    share_->step(context, lr, gradient_scale, gradients, values);
    gather_.gather(values);
    step_count_ = share_->step_count();
  }

  void step_on_device(KernelContext& context, const DeviceStep& step) override {
    share_->step_on_device(context, {.numbers = step.numbers,
                                     .control = step.control,
                                     .gradients = step.gradients,
                                     .values = step.values});
    gather_.gather_on_device(context.stream, step.values);
    if (step.half_copy != nullptr)
      ops::copy_to_half(context, step.values.flat(), step.halves(0, step.values.size()));
  }

  std::vector<State> state() override { return share_->state(); }

 private:
  const std::unique_ptr<Optimizer> share_;
  ParameterGather& gather_;
};

}  // namespace

std::unique_ptr<Optimizer> with_gathering(std::unique_ptr<Optimizer> share,
                                          ParameterGather& gather) {
  return std::make_unique<Gathered>(std::move(share), gather);
}

}  // namespace engine
