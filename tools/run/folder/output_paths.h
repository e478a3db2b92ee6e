// Files that a run or a command is to write, looked at before anything else is done.
#pragma once

#include <string>
#include <vector>

namespace tools {

// Throws io::CannotCreateError where the file of an option (`what`: "metrics") cannot be made or
// written: a folder has its name, its own folder is missing, permissions are, or it is a file that
// a run keeps in its folder. The file is not made. "" and "-" are no file; `save_dir` may be
// missing, for it will be made.
void check_output_path(const std::string& what, const std::string& path,
                       const std::string& save_dir);

// The same for a file that takes the place of what is there: it must be neither a link (which would
// be replaced, and what it points to left as it was) nor one of the files that are read. Throws
// UsageError for "-", which is no name of a file.
void check_new_file(const std::string& path, const std::vector<std::string>& read);

// Throws io::CannotCreateError for a file that a run appends to or writes in place, or its folder
// for TensorBoard, if it is a link or has a second name (io/base/files/own_file.h).
void check_own_names(const std::string& folder);

// Of a folder that holds no run: throws io::CannotCreateError for a file of a name that a run would
// write or append to, where no run has written it.
void check_folder_is_free(const std::string& folder);

}  // namespace tools
