// What an evaluation found class by class, for people and for programs.
#pragma once

#include <string>
#include <vector>

#include "engine/train/class_counts.h"
#include "io/base/formats/json_writer.h"

namespace tools {

// Classes up to which a table of them fits a console.
inline constexpr std::int64_t kMaxInTables = 20;

// Lines: means and calibration; with up to kMaxInTables classes a table of them and the confusion
// matrix. `names` are by class.
std::string class_tables(const engine::ClassCounts& counts, const std::vector<std::string>& names);
// class,precision,recall,f1,support: a line for each class.
std::string class_csv(const engine::ClassCounts& counts, const std::vector<std::string>& names);
// Members of an object that is being written: the same numbers, and the confusion matrix of up to
// 100 classes.
void add_classes(base::JsonWriter& object, const engine::ClassCounts& counts,
                 const std::vector<std::string>& names);
// The matrix as CSV. Throws io::CannotCreateError, and io::ConfigError for too many classes.
void write_confusion(const engine::ClassCounts& counts, const std::vector<std::string>& names,
                     const std::string& path);

}  // namespace tools
