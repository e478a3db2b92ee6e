// The kinds of labels that a data set may have. A new kind is a struct like these, and its name in
// `Labels`.
//
// Each kind K has these members; a missing one is a compile error:
// - K::kTraits: LabelTraits.
// - size(samples): number of labeled samples. classes(): number of outputs of the model.
// - bytes(), add_to(digest), like(), keep(chosen): see the members of samples (samples.h).
// - choose(count, seed): samples for --limit, ascending. REQUIRES: 0 < count <= size().
// - batch_part(set, samples): fills the labels of batches. `set` names the data set in messages;
//   both must outlive it.
#pragma once

#include <memory>
#include <string>
#include <variant>

#include "io/data/labels/class_labels.h"
#include "io/data/labels/multi_labels.h"
#include "io/data/labels/next_tokens.h"
#include "io/data/labels/position_labels.h"
#include "io/data/labels/target_values.h"

namespace io {

using Labels = std::variant<ClassLabels, TargetValues, MultiLabels, NextTokens, PositionLabels>;

// Returns batch_part() of the kind.
inline std::unique_ptr<BatchPart> batch_part(const Labels& labels, const std::string& set,
                                             const Samples& samples) {
  return std::visit([&](const auto& kind) { return kind.batch_part(set, samples); }, labels);
}

}  // namespace io
