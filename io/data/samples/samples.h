// The kinds of samples that a data set may have. A new kind is a struct beside these, and its name
// in `Samples`.
//
// Each kind K has these members, which the compiler asks for where one is missing:
// - K::kTraits: SampleTraits.
// - shape(), set_shape(): three extents, as snapshots state them. model_shape(): those that a model
//   reads.
// - positions(): predictions of a sample.
// - bytes(): memory of the samples. statistics(): numbers that normalize them, all ranks' the same.
// - add_to(digest): adds the samples, so that another set has another digest.
// - like(): the same without samples. keep(chosen): keeps these samples, which ascend.
// - intake(): what a model of these samples takes; it takes other samples with the same text.
// - batch_part(how): what fills the samples of batches; the samples outlive it. Throws ConfigError
//   for a preparation that the kind lacks, DataError if samples are missing.
// - has_bytes(): whether batches can be bytes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "io/data/samples/batch.h"
#include "io/data/samples/feature_samples.h"
#include "io/data/samples/image_samples.h"
#include "io/data/samples/token_samples.h"

namespace io {

using Samples = std::variant<ImageSamples, FeatureSamples, TokenSamples>;

// Returns batch_part() of the kind.
std::unique_ptr<BatchPart> batch_part(const Samples& samples, const Preparation& how);

// An empty set of the kind whose SampleTraits::name it is; nothing for an unknown name.
std::optional<Samples> samples_named(std::string_view name);
// "images, features or tokens"
std::string sample_names();

}  // namespace io
