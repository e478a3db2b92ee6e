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
#include <cmath>
#include <limits>

#include "engine/averaging/math/flat_math.h"
#include "engine/averaging/sums/gradient_sum.h"
#include "engine/ops/codes/top_k_entry.h"
#include "io/base/text/text_parts.h"

namespace engine {
namespace {

template <class T>
class TopKSum final : public GradientSum {
 public:
  TopKSum(backends::Communicator& communicator, FlatBuffer& gradients, double ratio)
      : communicator_(communicator),
        gradients_(gradients),
        error_(FlatBuffer::like(gradients)),
        sent_(top_k_elements(gradients, ratio)),
        magnitudes_(static_cast<std::size_t>(gradients.size())) {
    require(gradients.size() <= std::numeric_limits<ops::TopKIndex>::max(),
            "top-k counts elements in 32 bits");
    own_.resize(top_k_bytes(gradients, ratio));
    all_.resize(own_.size() * static_cast<std::size_t>(communicator.world_size()));
    note_ = top_k_note(ratio);
  }
  std::string note() const override { return note_; }
  bool whole() const override { return true; }
  void sum(std::int64_t /*first*/, std::int64_t /*count*/) override {
    const std::span<T> error = error_.span<T>(), gradient = gradients_.span<T>();
    for (std::size_t i = 0; i < error.size(); ++i)
      magnitudes_[i] = ops::top_k_key(error[i] += gradient[i]);
    choose(error);
    communicator_.all_gather(own_.data(), own_.size(), all_.data());
    bytes_sent_ += static_cast<std::int64_t>(own_.size());
    std::fill(gradient.begin(), gradient.end(), T(0));
    for (int rank = 0; rank < communicator_.world_size(); ++rank)
      add(all_.data() + static_cast<std::size_t>(rank) * own_.size(), gradient);
  }
  std::vector<PolicyState> state() override { return {{"gradient_error", &error_, true}}; }

 private:
  // Fills own_ with the largest elements and removes them from the error, also others that are not
  // finite. Among equal elements at the limit, the first ones are chosen.
  void choose(std::span<T> error) {
    const auto limit = magnitudes_.end() - sent_;
    std::nth_element(magnitudes_.begin(), limit, magnitudes_.end());
    const auto least = *limit;
    std::int64_t at_limit = std::count(limit, magnitudes_.end(), least), k = 0;
    for (std::size_t i = 0; i < error.size() && k < sent_; ++i) {
      const auto size = ops::top_k_key(error[i]);
      if (size < least || (size == least && at_limit-- <= 0)) continue;
      put(k++, static_cast<ops::TopKIndex>(i), error[i]);
      error[i] = 0;
    }
    if (least < ops::TopKKey<T>::kInfinite) return;
    for (T& value : error)
      if (!std::isfinite(value)) value = 0;  // a later step cannot repair it
  }
  void put(std::int64_t k, ops::TopKIndex index, T value) {
    const auto at = static_cast<std::size_t>(k);
    std::memcpy(own_.data() + at * sizeof value, &value, sizeof value);
    std::memcpy(own_.data() + ops::top_k_indices_at(sent_, sizeof value) + at * sizeof index,
                &index, sizeof index);
  }
  void add(const std::byte* message, std::span<T> gradient) const {
    const std::byte* indices = message + ops::top_k_indices_at(sent_, sizeof(T));
    for (std::size_t k = 0; k < static_cast<std::size_t>(sent_); ++k) {
      T value;
      ops::TopKIndex index;
      std::memcpy(&value, message + k * sizeof value, sizeof value);
      std::memcpy(&index, indices + k * sizeof index, sizeof index);
      check_top_k_index(index, gradients_.size());
      gradient[index] += value;
    }
  }

  backends::Communicator& communicator_;
  FlatBuffer& gradients_;
  FlatBuffer error_;
  const std::int64_t sent_;
  std::vector<typename ops::TopKKey<T>::Bits> magnitudes_;
  std::vector<std::byte> own_, all_;
  std::string note_;
};

}  // namespace

std::int64_t top_k_elements(std::int64_t elements, double ratio) {
  require(ratio > 0 && ratio <= 1, "top-k sends a ratio in (0, 1]");
  return std::clamp<std::int64_t>(
      static_cast<std::int64_t>(std::ceil(ratio * static_cast<double>(elements))), 1,
      std::max<std::int64_t>(1, elements));
}

std::int64_t top_k_elements(const FlatBuffer& gradients, double ratio) {
  std::int64_t elements = 0;
  for (const FlatBuffer::Slot& slot : gradients.slots()) elements += slot.count;
  return top_k_elements(elements, ratio);
}

std::size_t top_k_bytes(const FlatBuffer& gradients, double ratio) {
  return ops::top_k_bytes(top_k_elements(gradients, ratio), size_of(gradients.dtype()));
}

void check_top_k_index(std::int64_t index, std::int64_t elements) {
  require(index < elements, "top-k: an index from another rank is outside the gradients");
}

std::string top_k_note(double ratio) { return base::number_text(" (top-k %g)", ratio); }

std::unique_ptr<GradientSum> make_top_k_sum(backends::Communicator& communicator,
                                            FlatBuffer& gradients, double ratio) {
  return with_element_type(gradients.dtype(), [&]<class T>(T) -> std::unique_ptr<GradientSum> {
    return std::make_unique<TopKSum<T>>(communicator, gradients, ratio);
  });
}

}  // namespace engine
