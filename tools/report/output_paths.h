// Files that a run is to write, looked at before anything else is done.
#pragma once

#include <string>

namespace tools {

// Throws io::CannotCreateError where the file of an option (`what`: "metrics") cannot be made or
// written: a folder has its name, its own folder is missing, or permissions are. The file is not
// made. "" and "-" are no file; `save_dir` may be missing, for it will be made.
void check_output_path(const std::string& what, const std::string& path,
                       const std::string& save_dir);

}  // namespace tools
