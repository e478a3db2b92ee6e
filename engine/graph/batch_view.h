// Defines the input and the results of a step: a mini-batch, and the sums over it.
#pragma once

#include <cstdint>
#include <span>

#include "engine/ops/images/prepare_images.h"

namespace engine {

// One mini-batch in host memory, as the loader provides it. `count` <= max_batch; 0 is a valid
// batch.
struct BatchView {
  std::int64_t count = 0;
  std::span<const float> samples;  // count * item count, NHWC; read in place if the plan is f32
  // In place of samples, after set_image_table(): images as bytes, NHWC, and the random draw for
  // each of them.
  std::span<const std::uint8_t> pixels{};
  std::span<const ops::ImageDraw> draws{};
  std::span<const std::int32_t>
      tokens{};  // in place of samples, for a model that reads token ids: count * context
  // count (times positions) labels; ops::kNoLabel: this one does not count
  std::span<const std::int32_t> labels;
  std::span<const float> targets{};  // in place of labels, for a regression model: count * targets
  // Weights of the losses, one for each label; or of positives, one for each target, which is
  // multiplied by it. Empty: 1.
  std::span<const double> weights{};
  std::span<const std::int64_t>
      sample_ids;  // count indices in the data set, for randomness per sample
  std::uint64_t epoch = 0;
  // The samples, and the labels of text, are gathered by sample_ids on the device, which has all of
  // them (ResidentSamples): they are empty here.
  bool resident = false;

  BatchView slice(std::int64_t first,
                  std::int64_t samples) const;  // returns samples [first, first + samples)
};

struct BatchResult {
  double loss_sum = 0;       // over samples (and positions), times their weights
  std::int64_t correct = 0;  // rows for which the label is the first of the largest logits; 0
                             // without labels
  std::int64_t rows = 0;     // samples times positions, without those of kNoLabel
  std::int64_t top5 =
      0;  // rows whose label is among the five largest logits; counted in inference mode only
};

// The sums of the last step and of all steps so far.
struct StepResults {
  BatchResult last, total;
  // On a device: steps without an update so far, because their gradients were not finite
  // (StepControl::skipped_steps).
  std::int64_t skipped_steps = 0;

  void add(const BatchResult& step) {
    last = step;
    total.loss_sum += step.loss_sum;
    total.correct += step.correct;
    total.rows += step.rows;
    total.top5 += step.top5;
  }
};

// The properties that a model expects of a batch.
struct BatchShape {
  enum class Samples { kValues, kPixels, kTokens };
  Samples samples = Samples::kValues;
  std::int64_t sample_items = 0, label_items = 0;  // elements per sample
  std::int64_t classes = 0;                        // 0: the labels are regression targets
  bool resident = false;                           // batches are (BatchView::resident)
};

// Throws InputError, which names the sample if there is one, if the size of a batch does not match
// its count, or if a label is outside [0, classes) and not kNoLabel. `ids`: sample ids are
// required.
void check_batch(const BatchView& batch, const BatchShape& shape, bool ids);

}  // namespace engine
