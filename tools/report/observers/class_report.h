// Formats an evaluation's results by class, for people and for programs.
#pragma once

#include <string>
#include <vector>

#include "engine/train/class_counts.h"
#include "io/base/formats/json_writer.h"

namespace tools {

// The maximum number of classes whose table fits a console.
inline constexpr std::int64_t kMaxInTables = 20;

// Returns lines with means and calibration and, with up to kMaxInTables classes, a table of them
// and the confusion matrix. `names` are by class.
std::string class_tables(const engine::ClassCounts& counts, const std::vector<std::string>& names);
// Returns class,precision,recall,f1,support: one line per class.
std::string class_csv(const engine::ClassCounts& counts, const std::vector<std::string>& names);
// Adds members to an object that is being written: the same numbers, and the confusion matrix of up
// to 100 classes.
void add_classes(base::JsonWriter& object, const engine::ClassCounts& counts,
                 const std::vector<std::string>& names);
// Writes the matrix as CSV. Throws io::CannotCreateError, and io::ConfigError for too many classes.
void write_confusion(const engine::ClassCounts& counts, const std::vector<std::string>& names,
                     const std::string& path);

}  // namespace tools
