// The process has one list, as it has one exit code.
#include "tools/report/output/lost_output.h"

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "io/base/files/io_error.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/run_log.h"

namespace tools {
namespace {

std::mutex mutex;
std::vector<std::pair<std::string, int>> lost;  // guarded by the mutex

}  // namespace

void note_lost_output(const std::string& what, int code) {
  if (what.empty()) return;
  const std::lock_guard guard(mutex);
  lost.emplace_back(what, code);
}

void check_lost_outputs() {
  for (const std::string& log : take_log_losses()) note_lost_output(log, kExitIo);
  const std::lock_guard guard(mutex);
  if (lost.empty()) return;
  std::string text;
  for (const auto& each : lost) text += each.first + "; ";
  text += "all else is complete";
  if (lost.front().second == kExitCannotCreate) throw io::CannotCreateError(text);
  throw io::Error(text);
}

}  // namespace tools
