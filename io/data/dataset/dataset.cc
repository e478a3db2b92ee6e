// Delegates to the kinds of samples and labels.
#include "io/data/dataset/dataset.h"

namespace io {

std::int64_t Dataset::size() const {
  return std::visit([&](const auto& kind) { return kind.size(samples); }, labels);
}
std::array<std::int64_t, 3> Dataset::shape() const {
  return std::visit([](const auto& kind) { return kind.shape(); }, samples);
}
void Dataset::set_shape(const std::array<std::int64_t, 3>& extents) {
  std::visit([&](auto& kind) { kind.set_shape(extents); }, samples);
}
std::int64_t Dataset::sample_count() const {
  const std::array<std::int64_t, 3> extents = shape();
  return extents[0] * extents[1] * extents[2];
}
std::vector<std::int64_t> Dataset::model_shape() const {
  return std::visit([](const auto& kind) { return kind.model_shape(); }, samples);
}
std::int64_t Dataset::positions() const {
  if (const auto* kind = find<PositionLabels>()) return kind->positions();
  return std::visit([](const auto& kind) { return kind.positions(); }, samples);
}
std::int64_t Dataset::classes() const {
  return std::visit([](const auto& kind) { return kind.classes(); }, labels);
}
const SampleTraits& Dataset::sample_traits() const {
  return std::visit([](const auto& kind) -> const SampleTraits& { return kind.kTraits; }, samples);
}
const LabelTraits& Dataset::label_traits() const {
  return std::visit([](const auto& kind) -> const LabelTraits& { return kind.kTraits; }, labels);
}
std::string Dataset::intake() const {
  return std::visit([](const auto& kind) { return kind.intake(); }, samples);
}
bool Dataset::has_bytes() const {
  return std::visit([](const auto& kind) { return kind.has_bytes(); }, samples);
}
std::uint64_t Dataset::bytes() const {
  const auto bytes_of_kind = [](const auto& kind) { return kind.bytes(); };
  return std::visit(bytes_of_kind, samples) + std::visit(bytes_of_kind, labels);
}

Dataset Dataset::like() const {
  return {.name = name,
          .samples = std::visit([](const auto& kind) -> Samples { return kind.like(); }, samples),
          .labels = std::visit([](const auto& kind) -> Labels { return kind.like(); }, labels)};
}

void Dataset::keep(const std::vector<std::int64_t>& chosen) {
  std::visit([&](auto& kind) { kind.keep(chosen); }, samples);
  std::visit([&](auto& kind) { kind.keep(chosen); }, labels);
}

void Dataset::limit(std::int64_t count, std::uint64_t seed) {
  keep(std::visit([&](const auto& kind) { return kind.choose(count, seed); }, labels));
}

// The loss of several labels is the sum over those that are known.
std::vector<double> Dataset::loss_weights() const {
  std::vector<double> weights;
  if (const auto* classes = find<ClassLabels>(); classes != nullptr && !classes->weights.empty())
    for (const std::int32_t id : classes->ids)
      weights.push_back(classes->weights[static_cast<std::size_t>(id)]);
  if (const auto* positions = find<PositionLabels>()) return positions->loss_weights();
  const auto* several = find<MultiLabels>();
  if (several == nullptr) return weights;
  for (std::int64_t i = 0; i < size(); ++i)
    weights.push_back(static_cast<double>(several->known(i)));
  return weights;
}

std::vector<std::int64_t> Dataset::label_shape() const {
  const auto* kind = find<PositionLabels>();
  return kind != nullptr ? kind->extents : std::vector<std::int64_t>{};
}
const std::vector<std::string>& Dataset::class_names() const {
  static const std::vector<std::string> kNone;
  if (const auto* kind = find<MultiLabels>()) return kind->names;
  const auto* kind = find<ClassLabels>();
  return kind != nullptr ? kind->names : kNone;
}
const std::vector<std::string>& Dataset::unknown_classes() const {
  static const std::vector<std::string> kNone;
  const auto* kind = find<ClassLabels>();
  return kind != nullptr ? kind->unknown : kNone;
}
const std::string& Dataset::vocabulary() const {
  static const std::string kNone;
  const auto* kind = find<NextTokens>();
  return kind != nullptr ? kind->vocabulary : kNone;
}
const TargetScale* Dataset::target() const {
  const auto* kind = find<TargetValues>();
  return kind != nullptr ? &kind->scale : nullptr;
}

}  // namespace io
