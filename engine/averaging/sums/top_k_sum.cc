// Top-k: gathers the largest elements of each rank and adds them in rank order. Method: Stich,
// Cordonnier and Jaggi, "Sparsified SGD with memory", 2018; the selection over the whole gradient
// is that of Lin et al., "Deep gradient compression", 2017.
//
// Each rank adds its gradient to the part that it has not sent so far (error_), sends the k largest
// elements of the result as values with indices, and keeps the rest for later. The ranks choose
// different indices, so the messages cannot be summed on the way like dense vectors; an all-gather
// sends all of them to every rank, which adds them in rank order and gets the same bits. The number
// of bytes received grows with the number of ranks.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "engine/averaging/math/flat_math.h"
#include "engine/averaging/sums/gradient_sum.h"
#include "io/base/text/text_parts.h"

namespace engine {
namespace {

// Returns |value| as an integer of the same order. NaN is the largest, so that it is sent and
// detected.
std::uint32_t magnitude(float value) { return std::bit_cast<std::uint32_t>(value) & 0x7fffffffu; }
std::uint64_t magnitude(double value) {
  return std::bit_cast<std::uint64_t>(value) & 0x7fffffffffffffffull;
}

// One rank's message: `sent_` values, then their indices (u32) in ascending order.
template <class T>
class TopKSum final : public GradientSum {
 public:
  TopKSum(backends::Communicator& communicator, FlatBuffer& gradients, double ratio)
      : communicator_(communicator),
        gradients_(gradients),
        error_(FlatBuffer::like(gradients)),
        magnitudes_(static_cast<std::size_t>(gradients.size())) {
    require(ratio > 0 && ratio <= 1, "top-k sends a ratio in (0, 1]");
    require(gradients.size() <= std::numeric_limits<std::uint32_t>::max(),
            "top-k counts elements in 32 bits");
    std::int64_t elements = 0;
    for (const FlatBuffer::Slot& slot : gradients.slots()) elements += slot.count;
    sent_ = std::clamp<std::int64_t>(
        static_cast<std::int64_t>(std::ceil(ratio * static_cast<double>(elements))), 1, elements);
    own_.resize(static_cast<std::size_t>(sent_) * kEntry);
    all_.resize(own_.size() * static_cast<std::size_t>(communicator.world_size()));
    note_ = base::number_text(" (top-k %g)", ratio);
  }
  std::string note() const override { return note_; }
  bool whole() const override { return true; }
  void sum(std::int64_t /*first*/, std::int64_t /*count*/) override {
    const std::span<T> error = error_.span<T>(), gradient = gradients_.span<T>();
    for (std::size_t i = 0; i < error.size(); ++i)
      magnitudes_[i] = magnitude(error[i] += gradient[i]);
    choose(error);
    communicator_.all_gather(own_.data(), own_.size(), all_.data());
    bytes_sent_ += static_cast<std::int64_t>(own_.size());
    std::fill(gradient.begin(), gradient.end(), T(0));
    for (int rank = 0; rank < communicator_.world_size(); ++rank)
      add(all_.data() + static_cast<std::size_t>(rank) * own_.size(), gradient);
  }
  std::vector<PolicyState> state() override { return {{"gradient_error", &error_, true}}; }

 private:
  static constexpr std::size_t kEntry = sizeof(T) + sizeof(std::uint32_t);

  // Fills own_ with the largest elements and removes them from the error. Among equal elements at
  // the limit, the first ones are chosen.
  void choose(std::span<T> error) {
    const auto limit = magnitudes_.end() - sent_;
    std::nth_element(magnitudes_.begin(), limit, magnitudes_.end());
    const auto least = *limit;
    std::int64_t at_limit = std::count(limit, magnitudes_.end(), least), k = 0;
    for (std::size_t i = 0; i < error.size() && k < sent_; ++i) {
      const auto size = magnitude(error[i]);
      if (size < least || (size == least && at_limit-- <= 0)) continue;
      put(k++, static_cast<std::uint32_t>(i), error[i]);
      error[i] = 0;
    }
  }
  void put(std::int64_t k, std::uint32_t index, T value) {
    const auto at = static_cast<std::size_t>(k);
    std::memcpy(own_.data() + at * sizeof value, &value, sizeof value);
    std::memcpy(own_.data() + static_cast<std::size_t>(sent_) * sizeof value + at * sizeof index,
                &index, sizeof index);
  }
  void add(const std::byte* message, std::span<T> gradient) const {
    const std::byte* indices = message + static_cast<std::size_t>(sent_) * sizeof(T);
    for (std::size_t k = 0; k < static_cast<std::size_t>(sent_); ++k) {
      T value;
      std::uint32_t index;
      std::memcpy(&value, message + k * sizeof value, sizeof value);
      std::memcpy(&index, indices + k * sizeof index, sizeof index);
      require(index < gradient.size(),
              "top-k: an index from another rank is outside the gradients");
      gradient[index] += value;
    }
  }

  backends::Communicator& communicator_;
  FlatBuffer& gradients_;
  FlatBuffer error_;
  std::vector<decltype(magnitude(T{}))> magnitudes_;
  std::int64_t sent_ = 1;
  std::vector<std::byte> own_, all_;
  std::string note_;
};

}  // namespace

std::unique_ptr<GradientSum> make_top_k_sum(backends::Communicator& communicator,
                                            FlatBuffer& gradients, double ratio) {
  return with_element_type(gradients.dtype(), [&]<class T>(T) -> std::unique_ptr<GradientSum> {
    return std::make_unique<TopKSum<T>>(communicator, gradients, ratio);
  });
}

}  // namespace engine
