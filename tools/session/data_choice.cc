// Options of a run as the data's own types.
#include "tools/session/data_choice.h"

#include <algorithm>

#include "io/base/io_error.h"

namespace tools {

io::DatasetOptions dataset_options(const tools::RunConfig& config) {
  return {.name = config.dataset,
          .directory = config.data_dir.empty() ? "data/" + config.dataset : config.data_dir,
          .seed = config.seed,
          .limit = config.limit,
          .synthetic_shape = config.synthetic_shape,
          .synthetic_size = config.synthetic_size,
          .synthetic_classes = config.synthetic_classes,
          .context = config.context,
          .text_stride = config.text_stride,
          .vocabulary_size = config.vocabulary_size,
          .image_size = config.image_size,
          .image_cache_bytes = config.image_cache_mb << 20,
          .annotations = config.annotations,
          .label_column = config.label_column,
          .csv_header = config.csv_header,
          .test_share = config.test_share};
}

engine::Shape sample_shape(const io::Dataset& dataset) {
  if (dataset.kind == io::SampleKind::kTokens) return {dataset.shape[0]};
  return {dataset.shape[0], dataset.shape[1], dataset.shape[2]};
}

io::Augmentation augmentation(const tools::RunConfig& config) {
  const auto wants = [&](const char* name) { return std::ranges::count(config.augment, name) > 0; };
  return {.resized_crop = wants("resized-crop"),
          .crop = wants("crop"),
          .flip = wants("flip"),
          .cutout = wants("cutout"),
          .crop_padding = config.crop_padding,
          .cutout_size = config.cutout_size};
}

io::Normalization normalization(const tools::RunConfig& config, const io::Dataset& dataset) {
  if (config.normalize == "unit") return io::Normalization::kUnit;
  if (config.normalize == "standard") return io::Normalization::kStandard;
  return dataset.shape[2] == 1 ? io::Normalization::kUnit : io::Normalization::kStandard;
}

std::int64_t global_batch_of(const tools::RunConfig& config, int world_size) {
  return config.batch_size_per_device > 0
             ? config.batch_size_per_device * world_size * config.grad_accum
             : config.batch_size;
}

io::SamplerOptions sampler_options(const tools::RunConfig& config, const io::Dataset& dataset,
                                   const backends::Group& group, const io::EpochOrder* order) {
  if (dataset.size() == 0)
    throw io::DataError("data set '" + dataset.name + "' has no training samples");
  return {.size = dataset.size(),
          .global_batch = global_batch_of(config, group.world_size()),
          .rank = group.rank(),
          .world_size = group.world_size(),
          .seed = config.seed,
          .shuffle = config.shuffle,
          .order = order,
          .uneven = config.uneven == "drop"  ? io::Uneven::kDrop
                    : config.uneven == "pad" ? io::Uneven::kPad
                                             : io::Uneven::kJoin,
          .shard = config.shard == "strided" ? io::Shard::kStrided
                   : config.shard == "file"  ? io::Shard::kFile
                                             : io::Shard::kContiguous,
          .parts = config.canonical ? config.reduction_shards : 0};
}

}  // namespace tools
