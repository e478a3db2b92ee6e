// Describes an end by a signal.
#include "tools/report/text/stop_report.h"

#include <cstring>
#include <filesystem>

#include "io/checkpoint/checkpoint_directory.h"
#include "tools/report/output/shell_text.h"

namespace tools {

std::string stop_text(const engine::TrainResult& result, bool preempted, const LastSave& last,
                      const std::string& on_each_rank) {
  const std::int64_t step = result.progress.global_step;
  std::string text = std::string(preempted ? "preempted" : "stopped") + " by signal " +
                     std::to_string(result.signal) + " (" + strsignal(result.signal) +
                     ") after step " + std::to_string(step) +
                     (result.interrupted.empty() ? "" : ", waiting no longer for other ranks") +
                     ": ";
  const std::string why = result.interrupted.empty() ? "" : " (" + result.interrupted + ")";
  if (last.path().empty()) return text + "nothing was saved" + why;
  const std::string folder = std::filesystem::path(last.path()).parent_path().string();
  return text + "saved " + last.path() +
         (last.step() == step ? "" : " (step " + std::to_string(last.step()) + ")") +
         "; to continue: " +
         (on_each_rank.empty()
              ? "engine train --resume " + shell_word(folder.empty() ? "." : folder)
              : "on each rank " + on_each_rank) +
         why;
}

std::string continue_text(const std::string& folder) {
  try {
    const std::string newest = io::find_newest_checkpoint(folder, nullptr);
    const std::string command = "engine train --resume " + shell_word(folder);
    if (newest.empty())
      return std::filesystem::exists(std::filesystem::path(folder) / "run.json")
                 ? "no checkpoint is saved in " + folder + "; to start over at step 0: " + command
                 : "";
    return std::filesystem::path(newest).filename().string() + " is saved in " + folder +
           "; to continue: " + command;
  } catch (const std::exception&) {
    return "";  // the failure itself is reported elsewhere
  }
}

}  // namespace tools
