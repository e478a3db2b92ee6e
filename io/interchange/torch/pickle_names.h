// Names of values that people keep beside a model: options, data types, sets, dates, paths.
#pragma once

#include <string_view>

namespace io::pickle {

// Whether MODULE.NAME is one of a fixed list of classes and functions whose values a reader may
// pass over. Nothing of them is imported or called.
bool is_harmless_name(std::string_view name);

}  // namespace io::pickle
