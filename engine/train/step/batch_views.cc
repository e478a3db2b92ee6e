// Passes spans on, and narrows draws.
#include "engine/train/step/batch_views.h"

#include "io/base/numbers/part_bounds.h"
#include "io/data/images/image_preparer.h"
#include "io/data/labels/position_labels.h"

namespace engine {

static_assert(io::PositionLabels::kIgnored == ops::kNoLabel);

namespace {

ops::ImageDraw narrow(const io::AugmentationDraw& draw) {
  const auto number = [](std::int64_t value) { return static_cast<std::int32_t>(value); };
  return {.shift_y = number(draw.shift_y),
          .shift_x = number(draw.shift_x),
          .mirrored = draw.mirrored ? 1 : 0,
          .hole_top = number(draw.cutout_top),
          .hole_left = number(draw.cutout_left),
          .hole_bottom = number(draw.cutout_bottom),
          .hole_right = number(draw.cutout_right)};
}

}  // namespace

BatchView view_of(const io::Batch& batch, std::vector<ops::ImageDraw>& draws) {
  draws.clear();
  for (const io::AugmentationDraw& draw : batch.draws) draws.push_back(narrow(draw));
  return {.count = batch.count(),
          .samples = batch.samples,
          .pixels = batch.pixels,
          .draws = draws,
          .tokens = batch.tokens,
          .labels = batch.labels,
          .targets = batch.targets,
          .weights = batch.weights,
          .sample_ids = batch.sample_ids,
          .epoch = static_cast<std::uint64_t>(batch.epoch),
          .resident = batch.resident};
}

BatchView micro_batch_of(const BatchView& batch, std::int64_t index, std::int64_t count) {
  const auto bounds = base::part_bounds(batch.count, index, count);
  return batch.slice(bounds.begin, bounds.size());
}

std::int64_t micro_batch_size(std::int64_t samples, std::int64_t index, std::int64_t count) {
  return base::part_bounds(samples, index, count).size();
}

BatchView shard_batch_of(const BatchView& batch, std::int64_t global_count,
                         const TreePartition& cut, int rank, int index) {
  const int first = cut.first(rank);
  const auto bounds = base::part_bounds(global_count, first + index, cut.parts());
  return batch.slice(bounds.begin - base::part_begin(global_count, first, cut.parts()),
                     bounds.size());
}

std::vector<float> image_table(const io::Dataset& dataset, io::Normalization normalization,
                               Device device) {
  if (!sends_bytes(dataset, device)) return {};
  return io::ImagePreparer(dataset.as<io::ImageSamples>().format, dataset.name, normalization, {})
      .table();
}

}  // namespace engine
