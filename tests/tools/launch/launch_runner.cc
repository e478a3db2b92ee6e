// Starting, finding and ending processes for the launcher's tests.
#include "tests/tools/launch/launch_runner.h"

#include <unistd.h>

#include <atomic>
#include <filesystem>

namespace test_support {

CommandResult launch(std::vector<std::string> arguments,
                     const std::map<std::string, std::string>& environment, int timeout_ms) {
  arguments.insert(arguments.begin(), {engine_binary(), "launch"});
  return run_command(arguments, environment, timeout_ms);
}

std::vector<pid_t> processes_with(const std::string& mark) {
  std::vector<pid_t> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const pid_t pid = static_cast<pid_t>(std::atoi(entry.path().filename().c_str()));
    if (pid <= 0 || pid == getpid()) continue;
    if (test_support::command_line_of(pid).find(mark) != std::string::npos) found.push_back(pid);
  }
  return found;
}

std::string unique_sleep() {
  static std::atomic<int> next{0};
  return std::to_string(90'000) + "." + std::to_string(getpid()) + "0" +
         std::to_string(next.fetch_add(1));
}

std::size_t sleepers(const std::string& mark) {
  std::size_t count = 0;
  for (const pid_t pid : processes_with("sleep"))
    count += test_support::command_line_of(pid) == std::string("sleep") + '\0' + mark + '\0';
  return count;
}

std::string last_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of('\n');
  if (end == std::string::npos) return "";
  const std::size_t start = text.rfind('\n', end);
  return text.substr(start + 1, end - start);
}

std::string wait_for_end_of(const std::string& file) {
  // One that has ended stays a zombie until its parent asks for it.
  return "until [ -s '" + file + "' ]; do sleep 0.05; done; while grep -qs '^State:.[^ZX]' " +
         "/proc/$(cat '" + file + "')/status; do sleep 0.05; done";
}

}  // namespace test_support
