// Describes folders and files that are no model of this program, but of other ones.
#pragma once

#include <string>

namespace models {

// Returns what the folder has in place of config.json and weights, e.g. an adapter, and what is
// expected; "" if nothing of it is known.
std::string foreign_folder_text(const std::string& folder);
// Returns the same for a file; "" if there is no such file.
std::string foreign_file_text(const std::string& path);

}  // namespace models
