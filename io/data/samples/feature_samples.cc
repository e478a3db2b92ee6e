// Rows are copied to batches.
#include "io/data/samples/feature_samples.h"

#include "io/data/samples/absent_part.h"
#include "io/data/samples/copied_rows.h"
#include "io/data/samples/keep_chosen.h"
#include "io/data/samples/sample_checks.h"

namespace io {
void FeatureSamples::add_to(base::StreamDigest& digest) const {
  digest.add(std::as_bytes(std::span(values)));
}

void FeatureSamples::keep(std::span<const std::int64_t> chosen) {
  keep_chosen(values, width(), chosen);
}

std::unique_ptr<BatchPart> FeatureSamples::batch_part(const Preparation& how) const {
  check_stored(how, values.size(), "numbers", width());
  refuse_images(how);
  if (how.resident) return std::make_unique<AbsentPart>();
  return copied_rows(values, width());
}

}  // namespace io
