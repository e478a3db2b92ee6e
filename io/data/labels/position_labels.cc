// Copies the labels of samples to batches, with a weight for each if classes have weights.
#include "io/data/labels/position_labels.h"

#include <algorithm>
#include <cstddef>

#include "io/data/labels/stratified_choice.h"
#include "io/data/samples/keep_chosen.h"

namespace io {
namespace {

double weight_of(const PositionLabels& labels, std::int32_t id) {
  if (id == PositionLabels::kIgnored) return 0;
  return labels.weights.empty() ? 1 : labels.weights[static_cast<std::size_t>(id)];
}

class CopiedPositions : public BatchPart {
 public:
  explicit CopiedPositions(const PositionLabels& labels)
      : labels_(labels), each_(static_cast<std::size_t>(labels.positions())) {}

  void reserve(BatchMemory& memory, std::size_t samples) const override {
    memory.labels.resize(samples * each_);
    if (!labels_.weights.empty()) memory.weights.resize(samples * each_);
  }

  void fill(BatchMemory& memory) const override {
    const std::span<const std::int64_t> ids = memory.batch.sample_ids;
    auto out = memory.labels.begin();
    for (const std::int64_t id : ids)
      out = std::copy_n(labels_.ids.begin() + id * static_cast<std::int64_t>(each_), each_, out);
    const std::span filled = std::span(memory.labels).first(ids.size() * each_);
    memory.batch.labels = filled;
    if (labels_.weights.empty()) return;
    std::ranges::transform(filled, memory.weights.begin(),
                           [this](std::int32_t id) { return weight_of(labels_, id); });
    memory.batch.weights = std::span(memory.weights).first(filled.size());
  }

 private:
  const PositionLabels& labels_;
  const std::size_t each_;
};

}  // namespace

std::int64_t PositionLabels::positions() const {
  std::int64_t product = 1;
  for (const std::int64_t extent : extents) product *= extent;
  return product;
}

std::int64_t PositionLabels::labelled() const {
  return std::ranges::count_if(ids, [](std::int32_t id) { return id != kIgnored; });
}

std::vector<double> PositionLabels::loss_weights() const {
  std::vector<double> sums;
  if (weights.empty() && labelled() == std::ssize(ids)) return sums;
  const auto each = static_cast<std::size_t>(positions());
  for (std::size_t first = 0; first < ids.size(); first += each) {
    double sum = 0;
    for (const std::int32_t id : std::span(ids).subspan(first, each)) sum += weight_of(*this, id);
    sums.push_back(sum);
  }
  return sums;
}

void PositionLabels::add_to(base::StreamDigest& digest) const {
  digest.add(std::as_bytes(std::span(extents)));
  digest.add(std::as_bytes(std::span(ids)));
}

// For this choice, all samples count as one class.
std::vector<std::int64_t> PositionLabels::choose(std::int64_t wanted, std::uint64_t seed) const {
  const std::size_t samples = ids.size() / static_cast<std::size_t>(positions());
  return stratified_positions(std::vector<std::int32_t>(samples, 0), wanted, seed);
}

void PositionLabels::keep(std::span<const std::int64_t> chosen) {
  keep_chosen(ids, static_cast<std::size_t>(positions()), chosen);
}

std::unique_ptr<BatchPart> PositionLabels::batch_part(const std::string&, const Samples&) const {
  return std::make_unique<CopiedPositions>(*this);
}

}  // namespace io
