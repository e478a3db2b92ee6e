// Makes folders.
#pragma once

#include <string>

namespace io {

// Makes the folder and its parents, if they are missing. Throws CannotCreateError ("cannot create
// folder X: it is a file").
void create_folder(const std::string& folder);

}  // namespace io
