// Checks the files that a run or a command is going to write, before anything else is done.
#pragma once

#include <string>
#include <vector>

namespace tools {

// Throws io::CannotCreateError if the file of an option (`what`: "metrics") cannot be created or
// written: a folder has its name, its folder or permissions are missing, or it is a file that a run
// keeps in its folder. The file is not created. "" and "-" are not files; `save_dir` may be
// missing, because it will be created.
void check_output_path(const std::string& what, const std::string& path,
                       const std::string& save_dir);

// Does the same for a file that replaces an existing one: it must be neither a link (the link would
// be replaced, and its target left unchanged) nor one of the files that are read. Throws UsageError
// for "-", which is not a file name.
void check_new_file(const std::string& path, const std::vector<std::string>& read);

// Throws io::CannotCreateError if a file that a run appends to or writes in place, or its folder
// for TensorBoard, is a link or has a second name (io/base/files/own_file.h), or if a folder has
// the name of a file that a run writes; latest, run.lock and run.json are checked by their users.
void check_own_names(const std::string& folder);

// For a folder that contains no run: throws io::CannotCreateError for a published model, and for an
// existing file that a run would write or append to, unless a run has written it.
void check_folder_is_free(const std::string& folder);

// Returns e.g. "runs/a: its job has not begun to train (run.lock or log.txt, but no run.json and no
// checkpoint)": a job that was killed while it read its data has left this folder, and one that is
// starting has it. Returns "" for other folders.
std::string unstarted_run_text(const std::string& folder);

}  // namespace tools
