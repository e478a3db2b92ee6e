// Describes for other programs how a model's input follows from the columns of a table.
#pragma once

#include <string>
#include <vector>

#include "io/data/readers/csv/csv_coding.h"

namespace tools {

// Returns a JSON object for each column that the model uses, in the order of its inputs. Its
// members are described in docs/interchange.md.
std::vector<std::string> column_descriptions(const io::CsvCoding& coding);

}  // namespace tools
