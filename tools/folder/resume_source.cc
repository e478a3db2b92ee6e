// Uses the same search as the checkpoint manager.
#include "tools/folder/resume_source.h"

#include <filesystem>

#include "tools/folder/run_record.h"

namespace tools {
namespace {

std::string id_in_record(const std::string& folder) {
  std::string fault;  // reported when the folder is taken
  return find_run_record(folder, fault).value_or(RunRecord{}).id;
}

}  // namespace

std::optional<io::DescribedCheckpoint> resume_source(const Resume& resume,
                                                     const std::string& own_folder,
                                                     const std::string& run_id) {
  if (resume.is_automatic() && !own_folder.empty())
    return io::find_newest_description(own_folder,
                                       run_id.empty() ? id_in_record(own_folder) : run_id);
  if (resume.from != Resume::From::kPath) return std::nullopt;
  std::error_code unknown;
  if (std::filesystem::is_directory(resume.path, unknown))
    return io::find_newest_description(resume.path);
  return io::DescribedCheckpoint{resume.path, io::load_description(resume.path)};
}

}  // namespace tools
