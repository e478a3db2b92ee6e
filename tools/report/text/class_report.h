// Formats an evaluation's results by class or by label, for people and for programs.
#pragma once

#include <string>
#include <vector>

#include "engine/train/scores/class_counts.h"
#include "engine/train/scores/label_scores.h"
#include "io/base/formats/json_writer.h"

namespace tools {

// The maximum number of classes whose table fits a console.
inline constexpr std::int64_t kMaxInTables = 20;

// Returns lines with means and calibration and, with up to kMaxInTables classes, a table of them
// and the confusion matrix. `names` are by class.
std::string class_tables(const engine::ClassCounts& counts, const std::vector<std::string>& names);
// Returns class,precision,recall,f1,support,iou: one line per class.
std::string class_csv(const engine::ClassCounts& counts, const std::vector<std::string>& names);
// Adds members to an object that is being written: the same numbers, and the confusion matrix of up
// to 100 classes.
void add_classes(base::JsonWriter& object, const engine::ClassCounts& counts,
                 const std::vector<std::string>& names);
// Writes the matrix as CSV. Throws io::CannotCreateError, and io::ConfigError for too many classes.
void write_confusion(const engine::ClassCounts& counts, const std::vector<std::string>& names,
                     const std::string& path);

// The same of several labels. Returns a table with a line for each of up to kMaxInTables labels, or
// "".
std::string label_table(const engine::LabelScores& scores, const std::vector<std::string>& names);
// Returns label,average_precision,precision,recall,f1,positives,known,auc: one line per label.
std::string label_csv(const engine::LabelScores& scores, const std::vector<std::string>& names);
// Adds members to an object that is being written: the means, and the same numbers as `labels`.
void add_labels(base::JsonWriter& object, const engine::LabelScores& scores,
                const std::vector<std::string>& names);

}  // namespace tools
