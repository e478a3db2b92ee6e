// Names of values that users store beside a model: options, data types, sets, dates, paths.
#pragma once

#include <string_view>

namespace io::pickle {

// Returns true if MODULE.NAME is in a fixed list of classes and functions whose values a reader may
// skip. Nothing is imported or called.
bool is_harmless_name(std::string_view name);

}  // namespace io::pickle
