// Copies the labels of samples to batches.
#include "io/data/labels/multi_labels.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "io/data/labels/stratified_choice.h"
#include "io/data/samples/keep_chosen.h"

namespace io {
namespace {

std::int64_t known_of(std::span<const float> values) {
  return std::ranges::count_if(values, [](float value) { return !std::isnan(value); });
}

class CopiedLabels : public BatchPart {
 public:
  explicit CopiedLabels(const MultiLabels& labels) : labels_(labels) {}

  void reserve(BatchMemory& memory, std::size_t samples) const override {
    memory.targets.resize(samples * width());
    if (!labels_.positive_weights.empty()) memory.weights.resize(samples * width());
  }

  void fill(BatchMemory& memory) const override {
    const std::span<const std::int64_t> ids = memory.batch.sample_ids;
    float* out = memory.targets.data();
    for (const std::int64_t id : ids)
      out = std::copy_n(labels_.values.begin() + id * static_cast<std::int64_t>(width()), width(),
                        out);
    memory.batch.targets = std::span(memory.targets).first(ids.size() * width());
    if (labels_.positive_weights.empty()) return;
    for (std::size_t i = 0; i < ids.size(); ++i)
      std::ranges::copy(labels_.positive_weights,
                        memory.weights.begin() + static_cast<std::ptrdiff_t>(i * width()));
    memory.batch.weights = std::span(memory.weights).first(ids.size() * width());
  }

 private:
  std::size_t width() const { return labels_.names.size(); }

  const MultiLabels& labels_;
};

}  // namespace

std::int64_t MultiLabels::size(const Samples&) const {
  return names.empty() ? 0 : std::ssize(values) / classes();
}

std::int64_t MultiLabels::known() const { return known_of(values); }

std::int64_t MultiLabels::known(std::int64_t sample) const {
  return known_of(
      std::span(values).subspan(static_cast<std::size_t>(sample * classes()), names.size()));
}

// All NaN here have the same bits.
void MultiLabels::add_to(base::StreamDigest& digest) const {
  digest.add(std::as_bytes(std::span(values)));
}

// For this choice, all samples count as one class.
std::vector<std::int64_t> MultiLabels::choose(std::int64_t wanted, std::uint64_t seed) const {
  const std::size_t samples = names.empty() ? 0 : values.size() / names.size();
  return stratified_positions(std::vector<std::int32_t>(samples, 0), wanted, seed);
}

void MultiLabels::keep(std::span<const std::int64_t> chosen) {
  keep_chosen(values, names.size(), chosen);
}

std::unique_ptr<BatchPart> MultiLabels::batch_part(const std::string&, const Samples&) const {
  return std::make_unique<CopiedLabels>(*this);
}

}  // namespace io
