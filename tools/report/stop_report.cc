// Words for the end by a signal.
#include "tools/report/stop_report.h"

#include <cstring>
#include <filesystem>

namespace tools {
namespace {

// As a shell takes it.
std::string shell_word(const std::string& text) {
  const auto harmless = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::strchr("/._-+:,@%=", c) != nullptr;
  };
  bool plain = !text.empty();
  std::string quoted = "'";
  for (const char c : text) {
    plain = plain && c != '\0' && harmless(c);
    quoted += c == '\'' ? "'\\''" : std::string(1, c);
  }
  return plain ? text : quoted + "'";
}

}  // namespace

std::string stop_text(const engine::TrainResult& result, bool preempted, const LastSave& last) {
  const std::int64_t step = result.progress.global_step;
  std::string text = std::string(preempted ? "preempted" : "stopped") + " by signal " +
                     std::to_string(result.signal) + " (" + strsignal(result.signal) +
                     ") after step " + std::to_string(step) + ": ";
  if (last.path().empty()) return text + "nothing was saved";
  const std::string folder = std::filesystem::path(last.path()).parent_path().string();
  return text + "saved " + last.path() +
         (last.step() == step ? "" : " (step " + std::to_string(last.step()) + ")") +
         "; to go on: engine train --resume " + shell_word(folder.empty() ? "." : folder);
}

}  // namespace tools
