// Takes parts of batches and validates batches.
#include "engine/graph/batch_view.h"

#include <string>

#include "engine/core/error.h"
#include "engine/ops/loss/softmax_cross_entropy.h"

namespace engine {
namespace {

[[noreturn]] void wrong_batch(const char* what, std::size_t found, std::int64_t expected,
                              std::int64_t count) {
  throw InputError("a batch of " + std::to_string(count) + " samples has " + std::to_string(found) +
                   " " + what + ", expected " + std::to_string(expected));
}

template <class T>
void expect(const char* what, std::span<const T> found, std::int64_t expected, std::int64_t count) {
  if (static_cast<std::int64_t>(found.size()) != expected)
    wrong_batch(what, found.size(), expected, count);
}

void check_labels(const BatchView& batch, const BatchShape& shape) {
  for (std::size_t i = 0; i < batch.labels.size(); ++i) {
    const std::int32_t label = batch.labels[i];
    if ((label >= 0 && label < shape.classes) || label == ops::kNoLabel) continue;
    const std::size_t sample = i / static_cast<std::size_t>(shape.label_items);
    const std::string who = batch.sample_ids.empty()
                                ? "row " + std::to_string(sample) + " of the batch"
                                : "sample " + std::to_string(batch.sample_ids[sample]);
    throw InputError("label " + std::to_string(label) + " of " + who +
                     " is out of range: the model has " + std::to_string(shape.classes) +
                     " classes, labels 0 to " + std::to_string(shape.classes - 1));
  }
}

}  // namespace

BatchView BatchView::slice(std::int64_t first, std::int64_t taken) const {
  require(first >= 0 && taken >= 0 && first + taken <= count, "a slice lies within its batch");
  const auto part = [&](const auto& values) {
    const std::size_t each = count == 0 ? 0 : values.size() / static_cast<std::size_t>(count);
    return values.subspan(static_cast<std::size_t>(first) * each,
                          static_cast<std::size_t>(taken) * each);
  };
  return {taken,         part(samples), part(pixels),     part(draws), part(tokens), part(labels),
          part(targets), part(weights), part(sample_ids), epoch,       resident};
}

void check_batch(const BatchView& batch, const BatchShape& shape, bool ids) {
  using Samples = BatchShape::Samples;
  require(batch.resident == shape.resident, "batches are gathered where their samples are");
  const std::int64_t count = batch.count, items = shape.resident ? 0 : count * shape.sample_items;
  const auto if_of = [&](Samples kind, std::int64_t expected) {
    return shape.samples == kind ? expected : 0;
  };
  expect("sample values", batch.samples, if_of(Samples::kValues, items), count);
  expect("bytes of images", batch.pixels, if_of(Samples::kPixels, items), count);
  expect("draws of images", batch.draws, if_of(Samples::kPixels, count), count);
  expect("tokens", batch.tokens, if_of(Samples::kTokens, items), count);
  const bool numbers = shape.classes == 0,
             gathered = shape.resident && shape.samples == Samples::kTokens;
  expect("labels", batch.labels, numbers || gathered ? 0 : count * shape.label_items, count);
  expect("targets", batch.targets, numbers ? count * shape.label_items : 0, count);
  if (!batch.weights.empty()) expect("weights", batch.weights, count * shape.label_items, count);
  if (ids || shape.resident || !batch.sample_ids.empty())
    expect("sample ids", batch.sample_ids, count, count);
  check_labels(batch, shape);
}

}  // namespace engine
