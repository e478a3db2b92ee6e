// The kinds of samples that a data set may have. A new kind is a struct like these, and its name in
// `Samples`.
//
// Each kind K has these members; a missing one is a compile error:
// - K::kTraits: SampleTraits.
// - shape(), set_shape(): three extents, as stored in checkpoints. model_shape(): those that a
//   model reads.
// - positions(): number of predictions per sample.
// - bytes(): memory of the samples. statistics(): numbers that normalize them, the same on all
//   ranks.
// - add_to(digest): adds the samples, so that another set has another digest.
// - like(): the same without samples. keep(chosen): keeps these samples, given in ascending order.
// - intake(): describes the samples that a model for this set accepts; it accepts other samples
//   with the same text.
// - batch_part(how): fills the samples of batches; the samples must outlive it. Throws ConfigError
//   for a preparation that the kind does not support, DataError if samples are missing.
// - has_bytes(): true if batches can contain bytes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "io/data/samples/array_samples.h"
#include "io/data/samples/batch.h"
#include "io/data/samples/feature_samples.h"
#include "io/data/samples/image_samples.h"
#include "io/data/samples/token_samples.h"

namespace io {

using Samples = std::variant<ImageSamples, FeatureSamples, TokenSamples, ArraySamples>;

// Returns batch_part() of the kind.
std::unique_ptr<BatchPart> batch_part(const Samples& samples, const Preparation& how);

// Returns an empty set of the kind with this SampleTraits::name; nothing for an unknown name.
std::optional<Samples> samples_named(std::string_view name);
// Returns "images, features, tokens or arrays".
std::string sample_names();

}  // namespace io
